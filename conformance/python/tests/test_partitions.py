import re

from azure.cosmos import CosmosClient

from support import ENDPOINT, KEY, all_ids, merge, partitions, split, split_all


def test_split_keeps_items(database, container):
    for number in range(40):
        container.create_item({"id": str(number), "pk": f"key {number}", "n": number})
    assert len(all_ids(container)) == 40
    split_all(database.id, container.id)
    for number in range(40):
        assert container.read_item(str(number), f"key {number}")["n"] == number
    for number in range(40, 60):
        container.create_item({"id": str(number), "pk": f"key {number}", "n": number})
    assert all_ids(container) == sorted(str(number) for number in range(60))
    counted = container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)
    assert list(counted) == [60]
    assert len(list(container.read_feed_ranges(force_refresh=True))) == 8


def test_split_old_session_token(database, container):
    written = {}
    for number in range(20):
        created = container.create_item({"id": str(number), "pk": f"key {number}"})
        written[number] = created.get_response_headers()["x-ms-session-token"]
        assert re.fullmatch(r"\d+:\d+#\d+.*", written[number])
    split_all(database.id, container.id)
    with CosmosClient(ENDPOINT, KEY) as fresh:
        same = fresh.get_database_client(database.id).get_container_client(container.id)
        for number, token in written.items():
            assert same.read_item(str(number), f"key {number}", session_token=token)["id"] == str(number)
    for number in written:
        assert container.read_item(str(number), f"key {number}")["id"] == str(number)


def fill(container, n):
    """Writes sixty items; gives the session token of each."""
    written = {}
    for number in range(60):
        answer = container.upsert_item({"id": str(number), "pk": f"key {number}", "n": n})
        written[number] = answer.get_response_headers()["x-ms-session-token"]
    return written


def test_merge_under_paging(database, container):
    before_split = fill(container, 1)
    n_before = len(partitions(database.id, container.id))
    split(database.id, container.id, 0)
    assert len(partitions(database.id, container.id)) == n_before + 1
    before_merge = fill(container, 2)
    query = container.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True, max_item_count=4)
    pages = query.by_page()
    found = list(next(pages))
    assert 1 <= len(found) <= 4
    merge(database.id, container.id, 0)
    assert len(partitions(database.id, container.id)) == n_before
    for page in pages:
        found += page
    assert sorted(found) == sorted(str(number) for number in range(60))
    with CosmosClient(ENDPOINT, KEY) as fresh:
        same = fresh.get_database_client(database.id).get_container_client(container.id)
        for number in range(60):
            for token in (before_split[number], before_merge[number]):
                assert same.read_item(str(number), f"key {number}", session_token=token)["n"] == 2
    for number in range(60):
        assert container.read_item(str(number), f"key {number}")["n"] == 2
