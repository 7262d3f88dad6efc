import assert from "node:assert/strict";
import { test } from "node:test";

import { allIds, assertMissing, freshContainer, range, readItem, waitUntil } from "./support.js";

const statuses = (answers) => answers.map((answer) => answer.statusCode);
const create = (id, n) => ({ operationType: "Create", resourceBody: { id, pk: "a", n } });
const replace = (id, n, options) => ({ operationType: "Replace", id, resourceBody: { id, pk: "a", n }, ...options });
const read = (id) => ({ operationType: "Read", id });
const remove = (id) => ({ operationType: "Delete", id });
const increment = (id) => ({
  operationType: "Patch",
  id,
  resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] },
});

test("batch-all-operations", async (t) => {
  const container = await freshContainer(t);
  for (const id of ["read", "replace", "patch", "delete"]) await container.items.create({ id, pk: "a", n: 1 });
  const upsert = (n) => ({ operationType: "Upsert", resourceBody: { id: "upsert", pk: "a", n } });
  const operations = [
    create("create", 2),
    upsert(2),
    upsert(3),
    read("read"),
    replace("replace", 2),
    increment("patch"),
    remove("delete"),
  ];
  const { code, result } = await container.items.batch(operations, "a");
  assert.equal(code, 200);
  assert.deepEqual(statuses(result), [201, 201, 200, 200, 200, 200, 204]);
  assert.deepEqual(result.slice(0, 6).map((answer) => answer.resourceBody.n), [2, 2, 3, 1, 2, 2]);
  assert.ok(result.every((answer) => answer.requestCharge > 0));
  assert.equal(result[0].eTag, (await readItem(container, "create", "a"))._etag);
  const left = (await container.items.readAll().fetchAll()).resources.map(({ id, n }) => [id, n]);
  assert.deepEqual(Object.fromEntries(left), { create: 2, upsert: 3, read: 1, replace: 2, patch: 2 });
});

test("batch-is-atomic", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "there", pk: "a", n: 1 });
  const operations = [create("new", 1), replace("there", 2), create("there", 3), remove("there")];
  const { code, result } = await container.items.batch(operations, "a");
  assert.equal(code, 207);
  assert.deepEqual(statuses(result), [424, 424, 409, 424]);
  assert.equal((await readItem(container, "there", "a")).n, 1);
  await assertMissing(container.item("new", "a"));
});

test("batch-if-match", async (t) => {
  const container = await freshContainer(t);
  const { item, etag: old } = await container.items.create({ id: "1", pk: "a", n: 1 });
  const { etag: current } = await item.replace({ id: "1", pk: "a", n: 2 });
  const failed = await container.items.batch([create("2", 1), replace("1", 3, { ifMatch: old })], "a");
  assert.deepEqual(statuses(failed.result), [424, 412]);
  assert.equal((await readItem(container, "1", "a")).n, 2);
  const done = await container.items.batch([replace("1", 3, { ifMatch: current })], "a");
  assert.deepEqual(statuses(done.result), [200]);
  assert.equal((await readItem(container, "1", "a")).n, 3);
});

test("batch-sees-its-own-writes", async (t) => {
  const container = await freshContainer(t);
  const operations = [create("1", 1), read("1"), increment("1"), read("1"), remove("1"), create("1", 10)];
  const { result } = await container.items.batch(operations, "a");
  assert.deepEqual(statuses(result), [201, 200, 200, 200, 204, 201]);
  assert.deepEqual([result[1].resourceBody.n, result[3].resourceBody.n], [1, 2]);
  assert.equal((await readItem(container, "1", "a")).n, 10);
});

test("bulk-many-items", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "7", pk: "key 7" });
  const operations = [
    ...range(0, 200).map((n) => ({
      operationType: "Create",
      partitionKey: `key ${n}`,
      resourceBody: { id: String(n), pk: `key ${n}`, n },
    })),
    { operationType: "Read", id: "7", partitionKey: "key 7" },
    { operationType: "Delete", id: "nobody", partitionKey: "key 1" },
  ];
  const outcomes = await container.items.executeBulkOperations(operations);
  const codes = outcomes.map(({ response, error }) => response?.statusCode ?? error.code);
  const expected = [...range(0, 200).map((n) => (n === 7 ? 409 : 201)), 200, 404];
  assert.deepEqual(codes, expected);
  assert.equal(outcomes[3].response.resourceBody.n, 3);
  assert.ok(outcomes[3].response.requestCharge > 0);
  assert.equal((await allIds(container)).length, 200);
});

test("delete-by-partition-key", async (t) => {
  const container = await freshContainer(t);
  await Promise.all(range(0, 30).map((n) => container.items.create({ id: String(n), pk: "ab"[n % 2] })));
  const { statusCode } = await container.deleteAllItemsForPartitionKey("a");
  assert.equal(statusCode, 200);
  await waitUntil(async () => (await allIds(container)).length === 15);
  await assertMissing(container.item("0", "a"));
  assert.equal((await readItem(container, "1", "b")).id, "1");
  assert.equal((await container.items.create({ id: "0", pk: "a" })).statusCode, 201);
});
