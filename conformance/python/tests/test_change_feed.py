"""The change feed, pulled. One iteration of the SDK's pager ends when every range has said that there is nothing new."""

import datetime

import pytest
from azure.core.exceptions import HttpResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosBatchOperationError

from support import ENDPOINT, KEY, merge, split, split_all, unique, wait_until


def read(container, **options):
    """What is there now, and the continuation to go on with."""
    found = list(container.query_items_change_feed(**options))
    return found, container.client_connection.last_response_headers["etag"]


def fill(container, numbers, n):
    for number in numbers:
        container.upsert_item({"id": str(number), "pk": f"key {number}", "n": n})


def seen(changes):
    return sorted((change["id"], change["n"]) for change in changes)


def wanted(numbers, n):
    return sorted((str(number), n) for number in numbers)


def test_feed_latest_versions(container):
    fill(container, range(30), 1)
    fill(container, range(10), 2)
    container.delete_item("29", "key 29")
    changes, _ = read(container, start_time="Beginning", max_item_count=4)
    assert seen(changes) == sorted(wanted(range(10), 2) + wanted(range(10, 29), 1))
    assert all(change["_lsn"] > 0 and change["_etag"] and change["_rid"] for change in changes)


def test_feed_resume(container):
    fill(container, range(20), 1)
    changes, continuation = read(container, start_time="Beginning")
    assert seen(changes) == wanted(range(20), 1)
    fill(container, range(15, 25), 2)
    changes, continuation = read(container, continuation=continuation)
    assert seen(changes) == wanted(range(15, 25), 2)
    changes, _ = read(container, continuation=continuation)
    assert changes == []


def test_feed_from_now(container):
    fill(container, range(10), 1)
    changes, continuation = read(container, start_time="Now")
    assert changes == []
    fill(container, range(5), 2)
    changes, _ = read(container, continuation=continuation)
    assert seen(changes) == wanted(range(5), 2)


def test_feed_from_time(container):
    fill(container, range(5), 1)
    last = container.read_item("4", "key 4")["_ts"]

    def later():
        fill(container, [9], 2)
        return container.read_item("9", "key 9")["_ts"] > last

    wait_until(later)
    since = datetime.datetime.fromtimestamp(last, datetime.timezone.utc)
    changes, _ = read(container, start_time=since)
    assert seen(changes) == wanted([9], 2)


def test_feed_logical_key(container):
    for n in range(6):
        container.create_item({"id": str(n), "pk": "a", "n": n})
        container.create_item({"id": str(n), "pk": "b", "n": n})
    changes, _ = read(container, start_time="Beginning", partition_key="a", max_item_count=2)
    assert [(change["pk"], change["n"]) for change in changes] == [("a", n) for n in range(6)]
    positions = [change["_lsn"] for change in changes]
    assert positions == sorted(positions)


def test_feed_ranges_cover_everything(container):
    fill(container, range(30), 1)
    ranges = list(container.read_feed_ranges())
    assert len(ranges) == 4
    changes = []
    for feed_range in ranges:
        changes += read(container, feed_range=feed_range, start_time="Beginning")[0]
    assert seen(changes) == wanted(range(30), 1)


def test_feed_after_split(database, container):
    fill(container, range(30), 1)
    changes, continuation = read(container, start_time="Beginning")
    assert len(changes) == 30
    split_all(database.id, container.id)
    fill(container, range(10, 20), 2)
    changes, continuation = read(container, continuation=continuation)
    assert seen(changes) == wanted(range(10, 20), 2)
    fill(container, range(3), 3)
    assert seen(read(container, continuation=continuation)[0]) == wanted(range(3), 3)


def test_feed_all_versions(database):
    policy = {"retentionDuration": 10}
    container = database.create_container(unique("items"), PartitionKey("/pk"), change_feed_policy=policy)
    changes, continuation = read(container, mode="AllVersionsAndDeletes", start_time="Now")
    assert changes == []
    for n in range(3):
        container.upsert_item({"id": "1", "pk": "a", "n": n})
    container.delete_item("1", "a")
    changes, _ = read(container, continuation=continuation)
    kinds = [change["metadata"]["operationType"] for change in changes]
    assert kinds == ["create", "replace", "replace", "delete"]
    assert [change["current"].get("n") for change in changes] == [0, 1, 2, None]
    gone = changes[3]["metadata"]
    assert (gone["id"], gone["partitionKey"]) == ("1", {"pk": "a"})
    assert gone["previousImageLSN"] == changes[2]["metadata"]["lsn"]
    assert all(change["metadata"]["crts"] > 0 for change in changes)


def test_feed_batch_uncut(container):
    operations = [("create", ({"id": f"b{n}", "pk": "a", "n": n},)) for n in range(50)]
    container.execute_item_batch(operations, partition_key="a")
    failing = [("create", ({"id": "new", "pk": "a"},)), ("create", ({"id": "b0", "pk": "a"},))]
    with pytest.raises(CosmosBatchOperationError):
        container.execute_item_batch(failing, partition_key="a")
    pages = container.query_items_change_feed(start_time="Beginning", max_item_count=10).by_page()
    pages = [page for page in map(list, pages) if page]
    assert len(pages) == 1
    assert [change["n"] for change in pages[0]] == list(range(50))
    assert len({change["_lsn"] for change in pages[0]}) == 1


def all_versions_container(database, key, **options):
    policy = {"retentionDuration": 10}
    return database.create_container(unique("items"), key, change_feed_policy=policy, **options)


def test_feed_all_versions_expiry(database):
    container = all_versions_container(database, PartitionKey("/pk"), default_ttl=-1)
    _, continuation = read(container, mode="AllVersionsAndDeletes", start_time="Now")
    container.create_item({"id": "1", "pk": "a", "ttl": 1})
    found = []

    def purged():
        nonlocal continuation
        changes, continuation = read(container, continuation=continuation)
        found.extend(changes)
        return len(found) == 2

    wait_until(purged)
    made, gone = (change["metadata"] for change in found)
    assert (made["operationType"], gone["operationType"]) == ("create", "delete")
    assert gone["timeToLiveExpired"] is True and not made.get("timeToLiveExpired")
    assert (gone["id"], found[1]["current"]) == ("1", {})
    assert read(container, start_time="Beginning")[0] == []


def test_feed_hierarchical_key(database):
    key = PartitionKey(path=["/tenant", "/user", "/session"], kind="MultiHash")
    container = all_versions_container(database, key)
    _, continuation = read(container, mode="AllVersionsAndDeletes", start_time="Now")
    keys = [(f"t{n}", f"u{n % 3}", n) for n in range(20)]
    for tenant, user, session in keys:
        container.create_item({"id": "1", "tenant": tenant, "user": user, "session": session})
    container.delete_item("1", ["t7", "u1", 7])
    changes, _ = read(container, continuation=continuation)
    gone = [change["metadata"] for change in changes if change["metadata"]["operationType"] == "delete"]
    assert [one["partitionKey"] for one in gone] == [{"tenant": "t7", "user": "u1", "session": 7}]
    found = []
    for feed_range in container.read_feed_ranges():
        found += read(container, feed_range=feed_range, start_time="Beginning")[0]
    left = [one for one in keys if one[2] != 7]
    assert sorted(change["session"] for change in found) == [session for _, _, session in left]
    changes, _ = read(container, start_time="Beginning", partition_key=["t5", "u2", 5])
    assert [change["session"] for change in changes] == [5]


def test_feed_after_merge(database, container):
    fill(container, range(30), 1)
    changes, continuation = read(container, start_time="Beginning")
    assert len(changes) == 30
    fill(container, range(10), 2)
    merge(database.id, container.id, 1)
    fill(container, range(20, 30), 2)
    changes, continuation = read(container, continuation=continuation)
    assert seen(changes) == wanted([*range(10), *range(20, 30)], 2)
    fill(container, range(3), 3)
    assert seen(read(container, continuation=continuation)[0]) == wanted(range(3), 3)


def test_feed_after_merge_and_split(database, container):
    fill(container, range(30), 1)
    changes, continuation = read(container, start_time="Beginning")
    assert len(changes) == 30
    fill(container, range(10), 2)
    # Three of four quarters become one, whose middle was no bound before.
    merge(database.id, container.id, 0)
    merge(database.id, container.id, 0)
    split(database.id, container.id, 0)
    fill(container, range(20, 30), 2)
    changes, continuation = read(container, continuation=continuation)
    # The SDK may read where its cursors overlap more than once.
    assert sorted(set(seen(changes))) == wanted([*range(10), *range(20, 30)], 2)
    fill(container, range(30), 3)
    assert sorted(set(seen(read(container, continuation=continuation)[0]))) == wanted(range(30), 3)


def test_feed_foreign_continuation(client, database, container):
    fill(container, range(5), 1)
    _, continuation = read(container, start_time="Beginning")
    other = database.create_container(unique("other"), PartitionKey("/pk"))
    fill(other, range(5), 1)
    with pytest.raises((ValueError, HttpResponseError)):
        read(other, continuation=continuation)
    database.delete_container(container)
    database.create_container(container.id, PartitionKey("/pk"))
    # A client that has not known the old one.
    with CosmosClient(ENDPOINT, KEY) as another:
        again = another.get_database_client(database.id).get_container_client(container.id)
        fill(again, range(5), 1)
        with pytest.raises((ValueError, HttpResponseError)):
            read(again, continuation=continuation)


@pytest.mark.skip(reason="The SDK takes the mode from the continuation, not beside it.")
def test_feed_other_mode_continuation():
    pass


@pytest.mark.skip(reason="The SDK has no change feed processor.")
def test_processor_latest_versions_killed():
    pass


@pytest.mark.skip(reason="The SDK has no change feed processor.")
def test_processor_latest_versions():
    pass


@pytest.mark.skip(reason="The SDK has no change feed processor.")
def test_processor_all_versions():
    pass


@pytest.mark.skip(reason="The SDK has no change feed processor.")
def test_processor_all_versions_killed():
    pass
