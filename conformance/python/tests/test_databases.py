import pytest

from support import Watcher, refused, unique


def test_database_create_read_delete(client):
    name, watcher = unique("db"), Watcher()
    database, properties = client.create_database(name, return_properties=True, raw_response_hook=watcher)
    assert watcher.status == 201
    assert properties["id"] == name
    assert properties["_self"] == f"dbs/{properties['_rid']}/"
    assert watcher.headers["etag"] == properties["_etag"]
    read = database.read()
    assert read == properties
    assert (read["_colls"], read["_users"]) == ("colls/", "users/")
    client.delete_database(name, raw_response_hook=watcher)
    assert watcher.status == 204
    with refused(404):
        database.read()


def test_database_create_twice_is_409(client, database):
    with refused(409):
        client.create_database(database.id)


def test_database_missing_is_404(client):
    with refused(404):
        client.get_database_client(unique("db")).read()
    with refused(404):
        client.delete_database(unique("db"))


def test_database_create_if_not_exists(client):
    name = unique("db")
    first = client.create_database_if_not_exists(name).read()
    second = client.create_database_if_not_exists(name).read()
    assert first["_rid"] == second["_rid"]
    client.delete_database(name)


def test_database_list(client, database):
    other = client.create_database(unique("db"))
    listed = [found["id"] for found in client.list_databases()]
    assert {database.id, other.id} <= set(listed)
    assert len(listed) == len(set(listed))
    paged = [found["id"] for page in client.list_databases(max_item_count=1).by_page() for found in page]
    assert {database.id, other.id} <= set(paged)
    client.delete_database(other)
    assert other.id not in [found["id"] for found in client.list_databases()]


def test_database_query_by_id(client, database):
    text, value = "SELECT * FROM root r WHERE r.id = @id", [{"name": "@id", "value": database.id}]
    found = list(client.query_databases(text, parameters=value))
    assert found == [database.read()]
    assert list(client.query_databases(text, parameters=[{"name": "@id", "value": unique("db")}])) == []


def test_database_shared_throughput(client):
    database = client.create_database(unique("db"), offer_throughput=500)
    assert database.get_throughput().offer_throughput == 500
    assert database.replace_throughput(600).offer_throughput == 600
    assert database.get_throughput().offer_throughput == 600
    client.delete_database(database)


def test_database_name_invalid_is_400(client):
    with pytest.raises(ValueError, match="illegal"):
        client.create_database("with/slash")
    pytest.skip("the SDK refuses such a name itself, so the server never sees it")
