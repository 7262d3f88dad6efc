from azure.cosmos import CosmosClient, PermissionMode

from support import ENDPOINT, Watcher, refused, unique


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


def read_permission(database, container, mode=PermissionMode.Read):
    user = database.create_user({"id": unique("user")})
    definition = {"id": unique("permission"), "permissionMode": mode, "resource": container.container_link}
    return user, user.create_permission(definition)


def test_permission_create_read_delete(database, container):
    user, permission = read_permission(database, container)
    assert permission.permission_mode == "Read"
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


def holder(database, container):
    """The container as someone sees it who holds nothing but a read permission's token."""
    _, permission = read_permission(database, container)
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
