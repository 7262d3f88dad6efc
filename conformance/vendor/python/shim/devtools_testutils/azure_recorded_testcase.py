def get_credential(**_options):
    raise NotImplementedError("against an emulator tests sign with the account's key")
