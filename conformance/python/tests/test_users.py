from azure.cosmos import CosmosClient, PermissionMode

from support import ENDPOINT, READ_ONLY_KEY, Watcher, refused, unique


def test_user_create_read_replace_delete(database):
    name, other = unique("user"), unique("user")
    watcher = Watcher()
    user = database.create_user({"id": name}, raw_response_hook=watcher)
    assert watcher.status == 201
    read = user.read()
    assert read["id"] == name and read["_permissions"] == "permissions/"
    assert [found["id"] for found in database.list_users()] == [name]
    with refused(409):
        database.create_user({"id": name})
    database.replace_user(name, {"id": other})
    assert [found["id"] for found in database.list_users()] == [other]
    with refused(404):
        database.get_user_client(name).read()
    database.delete_user(other)
    assert list(database.list_users()) == []
    with refused(404):
        database.delete_user(other)


def read_permission(database, container, **more):
    user = database.create_user({"id": unique("user")})
    definition = {"id": unique("permission"), "permissionMode": PermissionMode.Read, "resource": container.container_link}
    definition |= more
    return user, user.create_permission(definition)


def test_permission_create_read_delete(database, container):
    user, permission = read_permission(database, container)
    assert permission.permission_mode == "read"
    assert permission.resource_link.strip("/") == container.container_link
    assert permission.properties["_token"].startswith("type=resource&ver=1")
    assert user.get_permission(permission.id).properties["_token"].startswith("type=resource&ver=1")
    assert [found["id"] for found in user.list_permissions()] == [permission.id]
    with refused(409):
        user.create_permission(
            {"id": permission.id, "permissionMode": PermissionMode.All, "resource": container.container_link}
        )
    user.delete_permission(permission.id)
    assert list(user.list_permissions()) == []
    with refused(404):
        user.get_permission(permission.id)


def holder(database, container, **more):
    """The container as someone sees it who holds nothing but a read permission's token."""
    _, permission = read_permission(database, container, **more)
    tokens = {container.container_link: permission.properties["_token"]}
    client = CosmosClient(ENDPOINT, tokens)
    return client.get_database_client(database.id).get_container_client(container.id)


def test_permission_token_reads(database, container):
    container.create_item({"id": "1", "pk": "a", "n": 7})
    allowed = holder(database, container)
    assert allowed.read_item("1", "a")["n"] == 7
    assert list(allowed.query_items("SELECT VALUE c.n FROM c", partition_key="a")) == [7]


def test_permission_token_cannot_write(database, container):
    container.create_item({"id": "1", "pk": "a", "n": 7})
    allowed = holder(database, container)
    with refused(403):
        allowed.create_item({"id": "2", "pk": "a"})
    with refused(403):
        allowed.replace_item("1", {"id": "1", "pk": "a", "n": 8})
    with refused(403):
        allowed.delete_item("1", "a")
    assert container.read_item("1", "a")["n"] == 7


def test_permission_of_one_partition_key(database, container):
    for key in ("a", "b"):
        container.create_item({"id": "1", "pk": key, "n": key * 2})
    allowed = holder(database, container, resourcePartitionKey=["a"])
    assert allowed.read_item("1", "a")["n"] == "aa"
    assert list(allowed.query_items("SELECT VALUE c.n FROM c", partition_key="a")) == ["aa"]
    with refused(403):
        allowed.read_item("1", "b")
    with refused(403):
        list(allowed.query_items("SELECT VALUE c.n FROM c", partition_key="b"))
    with refused(403):
        allowed.create_item({"id": "2", "pk": "a"})


def test_permission_of_one_item(database, container):
    for id in ("1", "2"):
        container.create_item({"id": id, "pk": "a", "n": 7})
    allowed = holder(
        database,
        container,
        permissionMode=PermissionMode.All,
        resource=container.container_link + "/docs/1",
        resourcePartitionKey=["a"],
    )
    assert allowed.read_item("1", "a")["n"] == 7
    assert allowed.replace_item("1", {"id": "1", "pk": "a", "n": 8})["n"] == 8
    increment = [{"op": "incr", "path": "/n", "value": 1}]
    assert allowed.patch_item("1", "a", increment)["n"] == 9
    for refusal in (
        lambda: allowed.read_item("2", "a"),
        lambda: allowed.replace_item("2", {"id": "2", "pk": "a"}),
        lambda: allowed.patch_item("2", "a", increment),
        lambda: allowed.delete_item("2", "a"),
        lambda: allowed.create_item({"id": "3", "pk": "a"}),
    ):
        with refused(403):
            refusal()
    allowed.delete_item("1", "a")
    assert [item["id"] for item in container.read_all_items()] == ["2"]


def test_read_only_key_cannot_read_permissions(database, container):
    user, permission = read_permission(database, container)
    with CosmosClient(ENDPOINT, READ_ONLY_KEY) as reader:
        same = reader.get_database_client(database.id).get_user_client(user.id)
        assert same.read()["id"] == user.id
        with refused(403):
            same.get_permission(permission.id)
        with refused(403):
            list(same.list_permissions())
    assert user.get_permission(permission.id).id == permission.id
