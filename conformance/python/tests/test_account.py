import json

import certifi
import pytest
from azure.core.exceptions import ServiceRequestError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.documents import SSLConfiguration

from support import CA, ENDPOINT, KEY, READ_ONLY_KEY, Watcher, refused, rotate_secondary_key, unique

ANOTHER_KEY = "b3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXkgb3RoZXIga2V5IG90aGVyIGtleSBvdGhlciBrZXkhIQ=="


def test_account_read(client):
    watcher = Watcher()
    account = client.get_database_account(raw_response_hook=watcher)
    assert account.ConsistencyPolicy["defaultConsistencyLevel"] == "Session"
    assert [place["name"] for place in account.WritableLocations] == ["West US"]
    assert [place["name"] for place in account.ReadableLocations] == ["West US"]
    assert account.WritableLocations[0]["databaseAccountEndpoint"].rstrip("/") == ENDPOINT.rstrip("/")
    assert watcher.status == 200
    assert json.loads(watcher.body)["id"]


def test_wrong_key_is_401():
    with refused(401):
        CosmosClient(ENDPOINT, ANOTHER_KEY).create_database(unique("db"))


def test_read_only_key_reads(container, database):
    container.create_item({"id": "1", "pk": "a", "n": 7})
    with CosmosClient(ENDPOINT, READ_ONLY_KEY) as reader:
        same = reader.get_database_client(database.id).get_container_client(container.id)
        assert same.read_item("1", "a")["n"] == 7
        assert list(same.query_items("SELECT VALUE c.n FROM c", partition_key="a")) == [7]


def test_read_only_key_cannot_write(container, database):
    container.create_item({"id": "1", "pk": "a", "n": 7})
    with CosmosClient(ENDPOINT, READ_ONLY_KEY) as reader:
        same = reader.get_database_client(database.id).get_container_client(container.id)
        with refused(403):
            same.create_item({"id": "2", "pk": "a"})
        with refused(403):
            same.delete_item("1", "a")
        with refused(403):
            reader.create_database(unique("db"))
    assert container.read_item("1", "a")["n"] == 7


def trusting(ca_file):
    """The SDK checks no certificate of localhost unless it is told which authority to trust."""
    configuration = SSLConfiguration()
    configuration.SSLCaCerts = ca_file
    return configuration


def test_https_with_local_authority():
    secure = ENDPOINT.replace("http://", "https://")
    with CosmosClient(secure, KEY, ssl_config=trusting(CA)) as client:
        account = client.get_database_account()
        assert account.WritableLocations[0]["databaseAccountEndpoint"].startswith("https://")
        database = client.create_database(unique("db"))
        try:
            container = database.create_container("items", PartitionKey("/pk"))
            created = container.create_item({"id": "1", "pk": "a"})
            assert container.read_item("1", "a") == created
            assert list(container.query_items("SELECT VALUE c.id FROM c", partition_key="a")) == ["1"]
        finally:
            client.delete_database(database)
    with pytest.raises(ServiceRequestError):
        CosmosClient(secure, KEY, ssl_config=trusting(certifi.where()), retry_total=0, retry_connect=0)


def walk(container):
    """Every kind of request about items once, each over the connection the container came by."""
    created = container.create_item({"id": "1", "pk": "a", "n": 1})
    container.upsert_item({"id": "2", "pk": "a", "n": 2})
    container.replace_item(created, {"id": "1", "pk": "a", "n": 10})
    container.patch_item("1", "a", [{"op": "incr", "path": "/n", "value": 1}])
    batch = [("create", ({"id": str(number), "pk": "a", "n": number},)) for number in range(3, 8)]
    assert [answer["statusCode"] for answer in container.execute_item_batch(batch, "a")] == [201] * 5
    container.delete_item("2", "a")
    assert container.read_item("1", "a")["n"] == 11
    query = container.query_items("SELECT VALUE c.n FROM c", enable_cross_partition_query=True, max_item_count=2)
    pages = [list(page) for page in query.by_page()]
    assert sorted(sum(pages, [])) == [3, 4, 5, 6, 7, 11]
    assert len(pages) >= 3 and all(len(page) <= 2 for page in pages)
    changes = container.query_items_change_feed(start_time="Beginning")
    assert sorted(change["n"] for change in changes) == [3, 4, 5, 6, 7, 11]


def test_tls_all_basic_operations():
    secure = ENDPOINT.replace("http://", "https://")
    with CosmosClient(secure, KEY, ssl_config=trusting(CA)) as client:
        database = client.create_database(unique("db"))
        try:
            walk(database.create_container("items", PartitionKey("/pk")))
        finally:
            client.delete_database(database)


def test_key_secondary_reads_and_writes():
    with CosmosClient(ENDPOINT, rotate_secondary_key()) as client:
        database = client.create_database(unique("db"))
        try:
            container = database.create_container("items", PartitionKey("/pk"))
            created = container.create_item({"id": "1", "pk": "a", "n": 7})
            assert container.read_item("1", "a") == created
            assert list(container.query_items("SELECT VALUE c.n FROM c", partition_key="a")) == [7]
        finally:
            client.delete_database(database)


def test_key_rotation_refuses_the_old_key(container, database):
    container.create_item({"id": "1", "pk": "a", "n": 7})

    def read_with(client):
        return client.get_database_client(database.id).get_container_client(container.id).read_item("1", "a")["n"]

    old = rotate_secondary_key()
    with CosmosClient(ENDPOINT, old) as client:
        assert read_with(client) == 7
        new = rotate_secondary_key()
        with refused(401):
            read_with(client)
    with refused(401):
        CosmosClient(ENDPOINT, old).create_database(unique("db"))
    with CosmosClient(ENDPOINT, new) as client:
        assert read_with(client) == 7
    assert container.read_item("1", "a")["n"] == 7, "the primary key stays"
