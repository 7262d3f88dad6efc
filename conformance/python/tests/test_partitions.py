import re

from azure.cosmos import CosmosClient

from support import ENDPOINT, KEY, all_ids, split_all


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
