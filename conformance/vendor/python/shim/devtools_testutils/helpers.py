def is_live():
    return is_live._cache


is_live._cache = False
