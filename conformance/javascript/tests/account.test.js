import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Agent } from "node:https";
import { test } from "node:test";

import { ChangeFeedStartFrom } from "@azure/cosmos";

import {
  assertMissing,
  caPath,
  client,
  connect,
  endpoint,
  freshContainer,
  key,
  range,
  readItem,
  readOnlyKey,
  refused,
  rotateSecondaryKey,
  unique,
} from "./support.js";

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

const numbers = (rows) => [...rows].sort((a, b) => a - b);

async function pagesOf(iterator) {
  const pages = [];
  while (iterator.hasMoreResults()) pages.push((await iterator.fetchNext()).resources ?? []);
  return pages;
}

/** Every change there is; the iterator has caught up when each of the four ranges has said so. */
async function changesOf(container) {
  const iterator = container.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  const found = [];
  for (let nEmpty = 0; nEmpty <= 4; ) {
    const page = await iterator.readNext();
    nEmpty = page.statusCode === 304 ? nEmpty + 1 : 0;
    found.push(...page.result);
  }
  return found;
}

/** Every kind of request about items once, each over the connection the container came by. */
async function walk(container) {
  const { item } = await container.items.create({ id: "1", pk: "a", n: 1 });
  assert.equal((await container.items.upsert({ id: "2", pk: "a", n: 2 })).statusCode, 201);
  assert.equal((await container.item("1", "a").replace({ id: "1", pk: "a", n: 10 })).statusCode, 200);
  assert.equal((await container.item("1", "a").patch([{ op: "incr", path: "/n", value: 1 }])).statusCode, 200);
  const creates = range(3, 8).map((n) => ({ operationType: "Create", resourceBody: { id: String(n), pk: "a", n } }));
  const { result } = await container.items.batch(creates, "a");
  assert.deepEqual(result.map((answer) => answer.statusCode), Array(5).fill(201));
  assert.equal((await container.item("2", "a").delete()).statusCode, 204);
  await assertMissing(container.item("2", "a"));
  assert.equal((await readItem(container, item.id, "a")).n, 11);
  const pages = await pagesOf(container.items.query("SELECT VALUE c.n FROM c", { maxItemCount: 2 }));
  assert.deepEqual(numbers(pages.flat()), [3, 4, 5, 6, 7, 11]);
  assert.ok(pages.length >= 3 && pages.every((page) => page.length <= 2));
  assert.deepEqual(numbers((await changesOf(container)).map((change) => change.n)), [3, 4, 5, 6, 7, 11]);
}

test("tls-all-basic-operations", async () => {
  const agent = new Agent({ ca: readFileSync(caPath) });
  const trusting = connect({ endpoint: endpoint.replace("http://", "https://"), key, agent });
  const { database } = await trusting.databases.create({ id: unique("db") });
  try {
    const { container } = await database.containers.create({ id: "items", partitionKey: "/pk" });
    await walk(container);
  } finally {
    await database.delete();
  }
});

// Each makes the secondary key of the other worthless. They are in one file, whose tests run one after the other.

test("key-secondary-reads-and-writes", async () => {
  const { database } = await connect({ key: await rotateSecondaryKey() }).databases.create({ id: unique("db") });
  try {
    const { container } = await database.containers.create({ id: "items", partitionKey: "/pk" });
    const { resource: created } = await container.items.create({ id: "1", pk: "a", n: 7 });
    assert.deepEqual(await readItem(container, "1", "a"), created);
    const { resources } = await container.items.query("SELECT VALUE c.n FROM c", { partitionKey: "a" }).fetchAll();
    assert.deepEqual(resources, [7]);
  } finally {
    await database.delete();
  }
});

test("key-rotation-refuses-the-old-key", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 7 });
  const seenWith = (someKey) => connect({ key: someKey }).database(container.database.id).container(container.id);
  const oldKey = await rotateSecondaryKey();
  const old = seenWith(oldKey);
  assert.equal((await readItem(old, "1", "a")).n, 7);
  const newKey = await rotateSecondaryKey();
  await refused(401, old.item("1", "a").read());
  await refused(401, seenWith(oldKey).items.create({ id: "2", pk: "a" }));
  assert.equal((await readItem(seenWith(newKey), "1", "a")).n, 7);
  assert.equal((await readItem(container, "1", "a")).n, 7, "the primary key stays");
});
