import pytest

from support import Watcher, refused, user_part


@pytest.fixture
def patched(container):
    """Creates the item and gives a function that patches it and shows what came of it."""

    def patch(item, operations, **options):
        container.create_item({"id": "1", "pk": "a", **item})
        answer = container.patch_item("1", "a", operations, **options)
        assert container.read_item("1", "a") == answer
        return {name: value for name, value in user_part(answer).items() if name not in ("id", "pk")}

    patch.container = container
    return patch


def test_patch_set_add_replace_remove(patched):
    after = patched(
        {"name": "Ada", "age": 36, "old": 1, "address": {"city": "London", "zip": "N1"}},
        [
            {"op": "set", "path": "/name", "value": "Grace"},
            {"op": "set", "path": "/address/country", "value": "UK"},
            {"op": "add", "path": "/address/street", "value": {"name": "High", "no": 1}},
            {"op": "replace", "path": "/age", "value": 37},
            {"op": "remove", "path": "/old"},
            {"op": "remove", "path": "/address/zip"},
        ],
    )
    assert after == {
        "name": "Grace",
        "age": 37,
        "address": {"city": "London", "country": "UK", "street": {"name": "High", "no": 1}},
    }


def test_patch_increment(patched):
    after = patched(
        {"n": 40, "f": 0.5, "deep": {"n": 1}},
        [
            {"op": "incr", "path": "/n", "value": 2},
            {"op": "incr", "path": "/f", "value": -1.25},
            {"op": "incr", "path": "/deep/n", "value": 1},
            {"op": "incr", "path": "/fresh", "value": 7},
        ],
    )
    assert after == {"n": 42, "f": -0.75, "deep": {"n": 2}, "fresh": 7}


def test_patch_array_insert_append(patched):
    after = patched(
        {"list": ["b", "d"], "kept": [1, 2]},
        [
            {"op": "add", "path": "/list/0", "value": "a"},
            {"op": "add", "path": "/list/2", "value": "c"},
            {"op": "add", "path": "/list/-", "value": "e"},
            {"op": "set", "path": "/kept/1", "value": 20},
            {"op": "remove", "path": "/kept/0"},
        ],
    )
    assert after == {"list": ["a", "b", "c", "d", "e"], "kept": [20]}


def test_patch_move(patched):
    after = patched(
        {"from": {"value": [1, 2]}, "to": {}}, [{"op": "move", "from": "/from/value", "path": "/to/value"}]
    )
    assert after == {"from": {}, "to": {"value": [1, 2]}}


def test_patch_condition_holds(patched):
    after = patched(
        {"stock": 5}, [{"op": "incr", "path": "/stock", "value": -1}], filter_predicate="FROM c WHERE c.stock > 0"
    )
    assert after == {"stock": 4}


def test_patch_condition_fails_is_412(container):
    before = container.create_item({"id": "1", "pk": "a", "stock": 0})
    with refused(412):
        container.patch_item(
            "1", "a", [{"op": "incr", "path": "/stock", "value": -1}], filter_predicate="FROM c WHERE c.stock > 0"
        )
    assert container.read_item("1", "a") == before


def test_patch_missing_path_is_400(container):
    before = container.create_item({"id": "1", "pk": "a", "n": 1})
    for operation in (
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "set", "path": "/no/parent", "value": 1},
    ):
        with refused(400):
            container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 2}, operation])
    assert container.read_item("1", "a") == before


def test_patch_missing_item_is_404(container):
    watcher = Watcher()
    with refused(404):
        container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 2}], raw_response_hook=watcher)
    assert watcher.status == 404
