import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Agent } from "node:https";
import { test } from "node:test";

import { caPath, client, connect, endpoint, freshContainer, key, readItem, readOnlyKey, refused, unique } from "./support.js";

const anotherKey = Buffer.from("another key ".repeat(6)).toString("base64");

test("account-read", async () => {
  const { resource: account, headers } = await client.getDatabaseAccount();
  assert.equal(account.consistencyPolicy, "Session");
  assert.deepEqual(account.writableLocations.map((place) => place.name), ["West US"]);
  assert.deepEqual(account.readableLocations.map((place) => place.name), ["West US"]);
  assert.equal(new URL(account.writableLocations[0].databaseAccountEndpoint).href, new URL(endpoint).href);
  assert.ok(headers["x-ms-activity-id"]);
});

test("wrong-key-is-401", async () => {
  await refused(401, connect({ key: anotherKey }).databases.create({ id: unique("db") }));
});

function asReader(container) {
  return connect({ key: readOnlyKey }).database(container.database.id).container(container.id);
}

test("read-only-key-reads", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 7 });
  const reader = asReader(container);
  assert.equal((await readItem(reader, "1", "a")).n, 7);
  const { resources } = await reader.items.query("SELECT VALUE c.n FROM c", { partitionKey: "a" }).fetchAll();
  assert.deepEqual(resources, [7]);
});

test("read-only-key-cannot-write", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 7 });
  const reader = asReader(container);
  await refused(403, reader.items.create({ id: "2", pk: "a" }));
  await refused(403, reader.item("1", "a").delete());
  await refused(403, connect({ key: readOnlyKey }).databases.create({ id: unique("db") }));
  assert.equal((await readItem(container, "1", "a")).n, 7);
});

test("https-with-local-authority", async () => {
  const secure = endpoint.replace("http://", "https://");
  const agent = new Agent({ ca: readFileSync(caPath) });
  const trusting = connect({ endpoint: secure, key, agent });
  const { resource: account } = await trusting.getDatabaseAccount();
  assert.ok(account.writableLocations[0].databaseAccountEndpoint.startsWith("https://"));
  const { database } = await trusting.databases.create({ id: unique("db") });
  try {
    const { container } = await database.containers.create({ id: "items", partitionKey: "/pk" });
    const { resource: created } = await container.items.create({ id: "1", pk: "a" });
    assert.deepEqual(await readItem(container, "1", "a"), created);
    const { resources } = await container.items.query("SELECT VALUE c.id FROM c", { partitionKey: "a" }).fetchAll();
    assert.deepEqual(resources, ["1"]);
  } finally {
    await database.delete();
  }
  const wary = connect({ endpoint: secure, key, agent: new Agent() });
  await assert.rejects(wary.getDatabaseAccount(), /certificate/);
});
