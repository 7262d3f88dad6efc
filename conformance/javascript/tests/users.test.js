import assert from "node:assert/strict";
import { test } from "node:test";

import { PermissionMode } from "@azure/cosmos";

import { assertMissing, connect, freshContainer, freshDatabase, readItem, readOnlyKey, refused, unique } from "./support.js";

const userIds = async (database) => (await database.users.readAll().fetchAll()).resources.map((user) => user.id);

test("user-create-read-replace-delete", async (t) => {
  const database = await freshDatabase(t);
  const [id, other] = [unique("user"), unique("user")];
  const created = await database.users.create({ id });
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource._permissions, "permissions/");
  assert.deepEqual((await database.user(id).read()).resource, created.resource);
  assert.deepEqual(await userIds(database), [id]);
  await refused(409, database.users.create({ id }));
  assert.equal((await database.user(id).replace({ id: other })).resource.id, other);
  assert.deepEqual(await userIds(database), [other]);
  await refused(404, database.user(id).read());
  assert.equal((await database.user(other).delete()).statusCode, 204);
  assert.deepEqual(await userIds(database), []);
  await refused(404, database.user(other).delete());
});

async function readPermission(container, more = {}) {
  const { user } = await container.database.users.create({ id: unique("user") });
  const definition = { id: unique("permission"), permissionMode: PermissionMode.Read, resource: container.url, ...more };
  return { user, definition, created: await user.permissions.create(definition) };
}

const permissionIds = async (user) => (await user.permissions.readAll().fetchAll()).resources.map((one) => one.id);

test("permission-create-read-delete", async (t) => {
  const { user, definition, created } = await readPermission(await freshContainer(t));
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource.permissionMode.toLowerCase(), "read");
  assert.equal(created.resource.resource, definition.resource);
  assert.match(created.resource._token, /^type=resource&ver=1/);
  const read = await user.permission(definition.id).read();
  assert.match(read.resource._token, /^type=resource&ver=1/);
  assert.deepEqual(await permissionIds(user), [definition.id]);
  await refused(409, user.permissions.create(definition));
  assert.equal((await user.permission(definition.id).delete()).statusCode, 204);
  assert.deepEqual(await permissionIds(user), []);
  await refused(404, user.permission(definition.id).read());
});

/** The container as someone sees it who holds nothing but a read permission's token. */
async function asHolder(container, more) {
  const { created } = await readPermission(container, more);
  const holder = connect({ resourceTokens: { [container.url]: created.resource._token } });
  return holder.database(container.database.id).container(container.id);
}

test("permission-token-reads", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 7 });
  assert.equal((await readItem(await asHolder(container), "1", "a")).n, 7);
});

test("permission-token-cannot-write", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 7 });
  const allowed = await asHolder(container);
  await refused(403, allowed.items.create({ id: "2", pk: "a" }));
  await refused(403, allowed.item("1", "a").replace({ id: "1", pk: "a", n: 8 }));
  await refused(403, allowed.item("1", "a").delete());
  assert.equal((await readItem(container, "1", "a")).n, 7);
  await assertMissing(container.item("2", "a"));
});

test("permission-of-one-partition-key", async (t) => {
  const container = await freshContainer(t);
  for (const pk of ["a", "b"]) await container.items.create({ id: "1", pk, n: pk + pk });
  const allowed = await asHolder(container, { resourcePartitionKey: ["a"] });
  assert.equal((await readItem(allowed, "1", "a")).n, "aa");
  const rows = (partitionKey) => allowed.items.query("SELECT VALUE c.n FROM c", { partitionKey }).fetchAll();
  assert.deepEqual((await rows("a")).resources, ["aa"]);
  await refused(403, allowed.item("1", "b").read());
  await refused(403, rows("b"));
  await refused(403, allowed.items.create({ id: "2", pk: "a" }));
});

test("permission-of-one-item", async (t) => {
  const container = await freshContainer(t);
  for (const id of ["1", "2"]) await container.items.create({ id, pk: "a", n: 7 });
  const allowed = await asHolder(container, {
    permissionMode: PermissionMode.All,
    resource: container.item("1", "a").url,
    resourcePartitionKey: ["a"],
  });
  const [own, other] = [allowed.item("1", "a"), allowed.item("2", "a")];
  const increment = [{ op: "incr", path: "/n", value: 1 }];
  assert.equal((await readItem(allowed, "1", "a")).n, 7);
  assert.equal((await own.replace({ id: "1", pk: "a", n: 8 })).resource.n, 8);
  assert.equal((await own.patch(increment)).resource.n, 9);
  await refused(403, other.read());
  await refused(403, other.replace({ id: "2", pk: "a" }));
  await refused(403, other.patch(increment));
  await refused(403, other.delete());
  await refused(403, allowed.items.create({ id: "3", pk: "a" }));
  assert.equal((await own.delete()).statusCode, 204);
  await assertMissing(container.item("1", "a"));
  assert.equal((await readItem(container, "2", "a")).n, 7);
});

test("read-only-key-cannot-read-permissions", async (t) => {
  const { user, definition } = await readPermission(await freshContainer(t));
  const same = connect({ key: readOnlyKey }).database(user.database.id).user(user.id);
  assert.equal((await same.read()).resource.id, user.id);
  await refused(403, same.permission(definition.id).read());
  await refused(403, same.permissions.readAll().fetchAll());
  assert.equal((await user.permission(definition.id).read()).statusCode, 200);
});
