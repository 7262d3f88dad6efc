import random
import string
from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.documents import IndexingDirective
from azure.cosmos.exceptions import CosmosBatchOperationError
from azure.cosmos.partition_key import NonePartitionKeyValue

from support import ENDPOINT, KEY, Watcher, refused, unique, user_part, wait_until


def test_item_create_and_read(container):
    watcher = Watcher()
    sent = {"id": "1", "pk": "a", "name": "Ada", "tags": ["x", None, 1.5]}
    created = container.create_item(sent, raw_response_hook=watcher)
    assert watcher.status == 201
    assert user_part(created) == sent
    assert created["_attachments"] == "attachments/"
    assert created["_self"].startswith("dbs/") and created["_self"].endswith(f"docs/{created['_rid']}/")
    assert created["_etag"] == created.get_response_headers()["etag"]
    assert isinstance(created["_ts"], int)
    read = container.read_item("1", "a", raw_response_hook=watcher)
    assert watcher.status == 200
    assert read == created


def test_item_create_twice_is_409(container):
    container.create_item({"id": "1", "pk": "a", "n": 1})
    with refused(409):
        container.create_item({"id": "1", "pk": "a", "n": 2})
    assert container.read_item("1", "a")["n"] == 1


def test_item_same_id_in_two_partitions(container):
    container.create_item({"id": "1", "pk": "a", "n": 1})
    container.create_item({"id": "1", "pk": "b", "n": 2})
    assert container.read_item("1", "a")["n"] == 1
    assert container.read_item("1", "b")["n"] == 2


def test_item_missing_is_404(container):
    with refused(404):
        container.read_item("nobody", "a")
    container.create_item({"id": "1", "pk": "a"})
    with refused(404):
        container.read_item("1", "b")


def test_item_in_missing_container_is_404(database):
    missing = database.get_container_client(unique("items"))
    with refused(404):
        missing.create_item({"id": "1", "pk": "a"})
    with refused(404):
        missing.read_item("1", "a")


def test_item_replace(container):
    created = container.create_item({"id": "1", "pk": "a", "n": 1, "old": True})
    watcher = Watcher()
    replaced = container.replace_item("1", {"id": "1", "pk": "a", "n": 2}, raw_response_hook=watcher)
    assert watcher.status == 200
    assert user_part(replaced) == {"id": "1", "pk": "a", "n": 2}
    assert replaced["_rid"] == created["_rid"]
    assert replaced["_etag"] != created["_etag"]
    assert container.read_item("1", "a") == replaced


def test_item_replace_missing_is_404(container):
    with refused(404):
        container.replace_item("1", {"id": "1", "pk": "a"})


def test_item_upsert_creates_then_replaces(container):
    watcher = Watcher()
    created = container.upsert_item({"id": "1", "pk": "a", "n": 1}, raw_response_hook=watcher)
    assert watcher.status == 201
    replaced = container.upsert_item({"id": "1", "pk": "a", "n": 2}, raw_response_hook=watcher)
    assert watcher.status == 200
    assert replaced["n"] == 2
    assert replaced["_rid"] == created["_rid"]
    assert container.read_item("1", "a") == replaced


def test_item_delete(container):
    container.create_item({"id": "1", "pk": "a"})
    watcher = Watcher()
    container.delete_item("1", "a", raw_response_hook=watcher)
    assert watcher.status == 204
    with refused(404):
        container.read_item("1", "a")
    with refused(404):
        container.delete_item("1", "a")


@pytest.mark.parametrize(
    "name",
    ["two words", "it's \"quoted\"", "100%", "%41", "a+b", "naïve ключ 鍵 🗝", "a&b=c;d,e", "[x]{y}|z~", "a:b@c!$"],
)
def test_item_id_special_characters(container, name):
    container.create_item({"id": name, "pk": name, "n": 1})
    assert container.read_item(name, name)["id"] == name
    assert container.replace_item(name, {"id": name, "pk": name, "n": 2})["n"] == 2
    parameters = [{"name": "@id", "value": name}]
    found = container.query_items("SELECT VALUE c.id FROM c WHERE c.id = @id", parameters=parameters, partition_key=name)
    assert list(found) == [name]
    container.delete_item(name, name)
    with refused(404):
        container.read_item(name, name)


def refused_in_a_batch(container, operation, status):
    """Some items the SDK refuses itself on their own, but sends inside a batch."""
    with pytest.raises(HttpResponseError) as caught:
        container.execute_item_batch([operation], "a")
    error = caught.value
    inside = error.operation_responses[0]["statusCode"] if isinstance(error, CosmosBatchOperationError) else None
    assert status in (inside, error.status_code), f"expected {status}, got {inside} in {error.status_code}"


def test_item_id_reserved_characters(container):
    with pytest.raises(ValueError, match="illegal"):
        container.create_item({"id": "a/b", "pk": "a"})
    # Inside a batch the SDK sends what it refuses on its own.
    names = ["a#b", "a/b", "a?b", "a\\b"]
    container.execute_item_batch([("create", ({"id": name, "pk": "a"},)) for name in names], "a")
    assert sorted(item["id"] for item in container.read_all_items()) == names


def test_item_without_id_is_400(container):
    with refused(400):
        container.create_item({"pk": "a"})
    with refused(400):
        container.upsert_item({"pk": "a", "id": ""})
    assert list(container.read_all_items()) == []


def test_item_64_bit_integers(container):
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1, 1234567890123456789]
    container.create_item({"id": "1", "pk": "a", "numbers": numbers, "at": {"depth": 2**62 + 1}})
    read = container.read_item("1", "a")
    assert read["numbers"] == numbers
    assert all(isinstance(number, int) for number in read["numbers"])
    assert read["at"]["depth"] == 2**62 + 1
    assert list(container.query_items("SELECT VALUE c.numbers FROM c", partition_key="a")) == [numbers]


def test_item_unicode_and_nesting(container):
    deep = "bottom"
    for level in range(40):
        deep = {"level": level, "below": [deep]}
    sent = {
        "id": "1",
        "pk": "ключ",
        "text": "Grüße, 世界 🪐 \u0000\u001f\u2028 \\ \" / \ud7ff\ue000 e\u0301",
        "ключ": {"🗝": "nested"},
        "": "empty name",
        "mixed": [[], {}, [[[]]], None, True, False, 0, -0.5, 1e300, ""],
        "deep": deep,
    }
    container.create_item(sent)
    assert user_part(container.read_item("1", "ключ")) == sent


def text_of(n_bytes):
    return "".join(random.Random(1).choices(string.ascii_letters, k=n_bytes))


def test_item_large(container):
    text = text_of(1_500_000)
    container.create_item({"id": "1", "pk": "a", "text": text})
    assert container.read_item("1", "a")["text"] == text


def test_item_too_large_is_413(container):
    with refused(413):
        container.create_item({"id": "1", "pk": "a", "text": text_of(2_200_000)})
    with refused(404):
        container.read_item("1", "a")


def keys_work(container, keys):
    for number, key in enumerate(keys):
        container.create_item({"id": "same", "pk": key, "n": number})
    for number, key in enumerate(keys):
        assert container.read_item("same", key)["n"] == number
        found = container.query_items("SELECT VALUE c.n FROM c", partition_key=key)
        assert list(found) == [number]


def test_item_number_key(container):
    keys_work(container, [0, 5, -128, 2.5, 1e-7, 2**40, "5"])


def test_item_boolean_key(container):
    keys_work(container, [True, False, "true"])


def test_item_null_key(container):
    container.create_item({"id": "1", "pk": None, "n": 1})
    container.create_item({"id": "1", "pk": "null", "n": 2})
    assert container.read_item("1", None)["n"] == 1
    container.delete_item("1", None)
    with refused(404):
        container.read_item("1", None)
    assert container.read_item("1", "null")["n"] == 2


def test_item_missing_key(container):
    container.create_item({"id": "1", "n": 1})
    container.create_item({"id": "1", "pk": None, "n": 2})
    read = container.read_item("1", NonePartitionKeyValue)
    assert read["n"] == 1 and "pk" not in read
    assert container.read_item("1", None)["n"] == 2
    container.delete_item("1", NonePartitionKeyValue)
    with refused(404):
        container.read_item("1", NonePartitionKeyValue)


def test_item_hierarchical_key(database):
    key = PartitionKey(path=["/tenant", "/user", "/session"], kind="MultiHash")
    container = database.create_container(unique("items"), key)
    for tenant in ("t1", "t2"):
        for user in ("u1", "u2"):
            for session in (1, 2):
                container.create_item({"id": "same", "tenant": tenant, "user": user, "session": session})
    read = container.read_item("same", ["t1", "u2", 2])
    assert (read["tenant"], read["user"], read["session"]) == ("t1", "u2", 2)
    with refused(404):
        container.read_item("same", ["t1", "u2", 3])
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["t1"]))) == 4
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["t1", "u2"]))) == 2
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["t1", "u2", 1]))) == 1
    replaced = container.replace_item("same", {"id": "same", "tenant": "t1", "user": "u2", "session": 2, "n": 1})
    assert replaced["n"] == 1
    container.delete_item("same", ["t1", "u2", 2])
    assert len(list(container.query_items("SELECT * FROM c", partition_key=["t1"]))) == 3


def test_item_key_mismatch_is_400(container):
    refused_in_a_batch(container, ("create", ({"id": "1", "pk": "b"},)), 400)
    assert list(container.read_all_items()) == []


def test_item_etag_if_match(container):
    created = container.create_item({"id": "1", "pk": "a", "n": 1})
    replaced = container.replace_item(
        "1", {"id": "1", "pk": "a", "n": 2}, etag=created["_etag"], match_condition=MatchConditions.IfNotModified
    )
    assert replaced["n"] == 2
    again = container.replace_item(
        "1", {"id": "1", "pk": "a", "n": 3}, etag=replaced["_etag"], match_condition=MatchConditions.IfNotModified
    )
    assert again["n"] == 3


def stale(container):
    created = container.create_item({"id": "1", "pk": "a", "n": 1})
    container.replace_item("1", {"id": "1", "pk": "a", "n": 2})
    return {"etag": created["_etag"], "match_condition": MatchConditions.IfNotModified}


def test_item_stale_etag_is_412(container):
    condition = stale(container)
    with refused(412):
        container.replace_item("1", {"id": "1", "pk": "a", "n": 3}, **condition)
    with refused(412):
        container.upsert_item({"id": "1", "pk": "a", "n": 3}, **condition)
    with refused(412):
        container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 3}], **condition)
    assert container.read_item("1", "a")["n"] == 2


def test_item_delete_stale_etag_is_412(container):
    condition = stale(container)
    with refused(412):
        container.delete_item("1", "a", **condition)
    current = container.read_item("1", "a")
    container.delete_item("1", "a", etag=current["_etag"], match_condition=MatchConditions.IfNotModified)
    with refused(404):
        container.read_item("1", "a")


def test_item_read_not_modified(container):
    created, watcher = container.create_item({"id": "1", "pk": "a"}), Watcher()
    condition = {"etag": created["_etag"], "match_condition": MatchConditions.IfModified}
    unchanged = container.read_item("1", "a", raw_response_hook=watcher, **condition)
    assert watcher.status == 304
    assert not watcher.body and not unchanged
    container.replace_item("1", {"id": "1", "pk": "a", "n": 2})
    assert container.read_item("1", "a", raw_response_hook=watcher, **condition)["n"] == 2
    assert watcher.status == 200


def test_item_no_content_response(container):
    watcher = Watcher()
    for write in (
        lambda: container.create_item({"id": "1", "pk": "a"}, no_response=True, raw_response_hook=watcher),
        lambda: container.upsert_item({"id": "1", "pk": "a"}, no_response=True, raw_response_hook=watcher),
        lambda: container.replace_item("1", {"id": "1", "pk": "a", "n": 2}, no_response=True, raw_response_hook=watcher),
    ):
        answer = write()
        assert watcher.status in (200, 201)
        assert not watcher.body and not answer
        assert watcher.headers["etag"]
    assert container.read_item("1", "a")["n"] == 2


def charge_of(answer):
    return float(answer.get_response_headers()["x-ms-request-charge"])


def test_item_request_charge(container):
    assert charge_of(container.create_item({"id": "1", "pk": "a"})) > 0
    assert charge_of(container.read_item("1", "a")) > 0
    assert charge_of(container.replace_item("1", {"id": "1", "pk": "a"})) > 0
    assert charge_of(container.patch_item("1", "a", [{"op": "set", "path": "/n", "value": 1}])) > 0
    watcher = Watcher()
    list(container.query_items("SELECT * FROM c", partition_key="a", raw_response_hook=watcher))
    assert float(watcher.headers["x-ms-request-charge"]) > 0
    with refused(404) as caught:
        container.read_item("2", "a")
    assert float(caught.value.headers["x-ms-request-charge"]) > 0
    container.delete_item("1", "a", raw_response_hook=watcher)
    assert float(watcher.headers["x-ms-request-charge"]) > 0


def lsn_of(token):
    return int(token.split("#")[1])


def test_item_session_token(database, container):
    first = container.create_item({"id": "1", "pk": "a"}).get_response_headers()["x-ms-session-token"]
    second = container.upsert_item({"id": "1", "pk": "a", "n": 2}).get_response_headers()["x-ms-session-token"]
    assert first.split(":")[0] == second.split(":")[0]
    assert lsn_of(second) > lsn_of(first)
    with CosmosClient(ENDPOINT, KEY) as other:
        same = other.get_database_client(database.id).get_container_client(container.id)
        read = same.read_item("1", "a", session_token=second)
        assert read["n"] == 2
        assert lsn_of(read.get_response_headers()["x-ms-session-token"]) >= lsn_of(second)


def test_item_unique_key_conflict_is_409(database):
    policy = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = database.create_container(unique("items"), PartitionKey("/pk"), unique_key_policy=policy)
    container.create_item({"id": "1", "pk": "a", "email": "x@example.com"})
    with refused(409):
        container.create_item({"id": "2", "pk": "a", "email": "x@example.com"})
    container.create_item({"id": "2", "pk": "a", "email": "y@example.com"})
    with refused(409):
        container.replace_item("2", {"id": "2", "pk": "a", "email": "x@example.com"})
    container.create_item({"id": "1", "pk": "b", "email": "x@example.com"})
    container.delete_item("1", "a")
    container.create_item({"id": "3", "pk": "a", "email": "x@example.com"})


def is_gone(container, name):
    try:
        container.read_item(name, "a")
    except HttpResponseError as error:
        assert error.status_code == 404
        return True
    return False


def test_item_ttl_expires(database):
    container = database.create_container(unique("items"), PartitionKey("/pk"), default_ttl=-1)
    container.create_item({"id": "short", "pk": "a", "ttl": 1})
    container.create_item({"id": "long", "pk": "a"})
    assert not is_gone(container, "long")
    wait_until(lambda: is_gone(container, "short"))
    assert not is_gone(container, "long")
    assert list(container.query_items("SELECT VALUE c.id FROM c", partition_key="a")) == ["long"]
    container.create_item({"id": "short", "pk": "a"})


def test_item_ttl_never(database):
    container = database.create_container(unique("items"), PartitionKey("/pk"), default_ttl=1)
    container.create_item({"id": "forever", "pk": "a", "ttl": -1})
    container.create_item({"id": "default", "pk": "a"})
    wait_until(lambda: is_gone(container, "default"))
    assert container.read_item("forever", "a")["ttl"] == -1


def test_item_not_indexed(container):
    container.create_item({"id": "1", "pk": "a", "n": 5})
    container.create_item({"id": "2", "pk": "a", "n": 5}, indexing_directive=IndexingDirective.Exclude)
    found = container.query_items("SELECT VALUE c.id FROM c WHERE c.n = 5 ORDER BY c.id", partition_key="a")
    assert list(found) == ["1", "2"]


def test_item_read_feed_pages(container):
    names = sorted(f"{number:02}" for number in range(35))
    for name in names:
        container.create_item({"id": name, "pk": f"key {name}"})
    pages = [[item["id"] for item in page] for page in container.read_all_items(max_item_count=10).by_page()]
    assert sorted(sum(pages, [])) == names
    assert len(pages) >= 4 and all(len(page) <= 10 for page in pages)
    pager = container.read_all_items(max_item_count=10).by_page()
    first = [item["id"] for item in next(pager)]
    assert pager.continuation_token
    resumed = container.read_all_items(max_item_count=10).by_page(pager.continuation_token)
    rest = [item["id"] for page in resumed for item in page]
    assert sorted(first + rest) == names


def test_item_concurrent_creates_one_wins(container):
    def create(number):
        try:
            container.create_item({"id": "1", "pk": "a", "n": number})
            return 201
        except HttpResponseError as error:
            return error.status_code

    with ThreadPoolExecutor(16) as pool:
        statuses = sorted(pool.map(create, range(32)))
    assert statuses == [201] + [409] * 31
