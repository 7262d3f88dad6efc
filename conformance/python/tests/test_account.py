import json

import certifi
import pytest
from azure.core.exceptions import ServiceRequestError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.documents import SSLConfiguration

from support import CA, ENDPOINT, KEY, READ_ONLY_KEY, Watcher, refused, unique

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
