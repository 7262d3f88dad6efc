import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";

import {
  allIds,
  assertMissing,
  connect,
  freshContainer,
  freshDatabase,
  key,
  range,
  readItem,
  refused,
  unique,
  userPart,
  waitUntil,
} from "./support.js";

test("item-create-and-read", async (t) => {
  const container = await freshContainer(t);
  const sent = { id: "1", pk: "a", name: "Ada", tags: ["x", null, 1.5] };
  const created = await container.items.create(sent);
  assert.equal(created.statusCode, 201);
  assert.deepEqual(userPart(created.resource), sent);
  assert.equal(created.resource._attachments, "attachments/");
  assert.ok(created.resource._self.endsWith(`docs/${created.resource._rid}/`));
  assert.equal(created.resource._etag, created.headers.etag);
  assert.ok(Number.isInteger(created.resource._ts));
  const read = await container.item("1", "a").read();
  assert.equal(read.statusCode, 200);
  assert.deepEqual(read.resource, created.resource);
});

test("item-create-twice-is-409", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await refused(409, container.items.create({ id: "1", pk: "a", n: 2 }));
  assert.equal((await readItem(container, "1", "a")).n, 1);
});

test("item-same-id-in-two-partitions", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await container.items.create({ id: "1", pk: "b", n: 2 });
  assert.equal((await readItem(container, "1", "a")).n, 1);
  assert.equal((await readItem(container, "1", "b")).n, 2);
});

test("item-missing-is-404", async (t) => {
  const container = await freshContainer(t);
  await assertMissing(container.item("nobody", "a"));
  await container.items.create({ id: "1", pk: "a" });
  await assertMissing(container.item("1", "b"));
});

test("item-in-missing-container-is-404", async (t) => {
  const missing = (await freshDatabase(t)).container(unique("items"));
  await refused(404, missing.items.create({ id: "1", pk: "a" }));
  await assertMissing(missing.item("1", "a"));
});

test("item-replace", async (t) => {
  const container = await freshContainer(t);
  const { resource: created } = await container.items.create({ id: "1", pk: "a", n: 1, old: true });
  const { statusCode, resource: replaced } = await container.item("1", "a").replace({ id: "1", pk: "a", n: 2 });
  assert.equal(statusCode, 200);
  assert.deepEqual(userPart(replaced), { id: "1", pk: "a", n: 2 });
  assert.equal(replaced._rid, created._rid);
  assert.notEqual(replaced._etag, created._etag);
  assert.deepEqual(await readItem(container, "1", "a"), replaced);
});

test("item-replace-missing-is-404", async (t) => {
  const container = await freshContainer(t);
  await refused(404, container.item("1", "a").replace({ id: "1", pk: "a" }));
});

test("item-upsert-creates-then-replaces", async (t) => {
  const container = await freshContainer(t);
  const created = await container.items.upsert({ id: "1", pk: "a", n: 1 });
  const replaced = await container.items.upsert({ id: "1", pk: "a", n: 2 });
  assert.deepEqual([created.statusCode, replaced.statusCode], [201, 200]);
  assert.equal(replaced.resource._rid, created.resource._rid);
  assert.deepEqual(await readItem(container, "1", "a"), replaced.resource);
});

test("item-delete", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a" });
  assert.equal((await container.item("1", "a").delete()).statusCode, 204);
  await assertMissing(container.item("1", "a"));
  await refused(404, container.item("1", "a").delete());
});

test("item-id-special-characters", async (t) => {
  const container = await freshContainer(t);
  const ids = ["two words", `it's "quoted"`, "100%", "%41", "a+b", "naïve ключ 鍵 🗝", "a&b=c;d,e", "[x]{y}|z~", "a:b@c!$"];
  for (const id of ids) {
    await container.items.create({ id, pk: id, n: 1 });
    assert.equal((await readItem(container, id, id)).id, id);
    assert.equal((await container.item(id, id).replace({ id, pk: id, n: 2 })).resource.n, 2);
    await container.item(id, id).delete();
    await assertMissing(container.item(id, id));
  }
});

test("item-id-reserved-characters", async (t) => {
  const container = await freshContainer(t);
  await assert.rejects(container.items.create({ id: "a/b", pk: "a" }), { message: /illegal/ });
  // Inside a bulk request the SDK sends what it refuses on its own.
  const ids = ["a#b", "a/b", "a?b", "a\\b"];
  const creates = ids.map((id) => ({ operationType: "Create", partitionKey: "a", resourceBody: { id, pk: "a" } }));
  await container.items.executeBulkOperations(creates);
  // It does not escape them in paths either.
  assert.deepEqual((await allIds(container)).sort(), ids);
});

test("item-without-id-is-400", async (t) => {
  const container = await freshContainer(t);
  const asItIs = { disableAutomaticIdGeneration: true };
  await refused(400, container.items.create({ pk: "a" }, asItIs));
  await refused(400, container.items.upsert({ pk: "a", id: "" }, asItIs));
  assert.deepEqual(await allIds(container), []);
});

test("item-64-bit-integers", (t) => {
  t.skip("numbers of JavaScript are doubles, and the SDK reads JSON into them");
});

test("item-unicode-and-nesting", async (t) => {
  const container = await freshContainer(t);
  const deep = range(0, 40).reduce((below, level) => ({ level, below: [below] }), "bottom");
  const sent = {
    id: "1",
    pk: "ключ",
    text: 'Grüße, 世界 🪐 \u0000\u001f\u2028 \\ " / \ud7ff\ue000 e\u0301',
    ключ: { "🗝": "nested" },
    "": "empty name",
    mixed: [[], {}, [[[]]], null, true, false, 0, -0.5, 1e300, ""],
    deep,
  };
  await container.items.create(sent);
  assert.deepEqual(userPart(await readItem(container, "1", "ключ")), sent);
});

const textOf = (nBytes) => randomBytes(nBytes / 2).toString("hex");

test("item-large", async (t) => {
  const container = await freshContainer(t);
  const text = textOf(1_500_000);
  await container.items.create({ id: "1", pk: "a", text });
  assert.equal((await readItem(container, "1", "a")).text, text);
});

test("item-too-large-is-413", async (t) => {
  const container = await freshContainer(t);
  await refused(413, container.items.create({ id: "1", pk: "a", text: textOf(2_200_000) }));
  await assertMissing(container.item("1", "a"));
});

async function assertKeysWork(t, keys) {
  const container = await freshContainer(t);
  for (const [n, pk] of keys.entries()) await container.items.create({ id: "same", pk, n });
  for (const [n, pk] of keys.entries()) {
    assert.equal((await readItem(container, "same", pk)).n, n);
    const { resources } = await container.items.query("SELECT VALUE c.n FROM c", { partitionKey: pk }).fetchAll();
    assert.deepEqual(resources, [n]);
  }
}

test("item-number-key", (t) => assertKeysWork(t, [0, 5, -128, 2.5, 1e-7, 2 ** 40, "5"]));

test("item-boolean-key", (t) => assertKeysWork(t, [true, false, "true"]));

test("item-null-key", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: null, n: 1 });
  await container.items.create({ id: "1", pk: "null", n: 2 });
  assert.equal((await readItem(container, "1", null)).n, 1);
  await container.item("1", null).delete();
  await assertMissing(container.item("1", null));
  assert.equal((await readItem(container, "1", "null")).n, 2);
});

test("item-missing-key", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", n: 1 });
  await container.items.create({ id: "1", pk: null, n: 2 });
  const read = await readItem(container, "1", undefined);
  assert.equal(read.n, 1);
  assert.ok(!("pk" in read));
  assert.equal((await readItem(container, "1", null)).n, 2);
  await container.item("1", undefined).delete();
  await assertMissing(container.item("1", undefined));
});

test("item-hierarchical-key", async (t) => {
  const partitionKey = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
  const container = await freshContainer(t, { partitionKey });
  const keys = ["t1", "t2"].flatMap((tenant) => ["u1", "u2"].flatMap((user) => [1, 2].map((session) => [tenant, user, session])));
  for (const [tenant, user, session] of keys) await container.items.create({ id: "same", tenant, user, session });
  const read = await readItem(container, "same", ["t1", "u2", 2]);
  assert.deepEqual([read.tenant, read.user, read.session], ["t1", "u2", 2]);
  await assertMissing(container.item("same", ["t1", "u2", 3]));
  const count = async (prefix) =>
    (await container.items.query("SELECT * FROM c", { partitionKey: prefix }).fetchAll()).resources.length;
  assert.equal(await count(["t1", "u2", 1]), 1);
  const item = container.item("same", ["t1", "u2", 2]);
  assert.equal((await item.replace({ ...userPart(read), n: 1 })).resource.n, 1);
  await item.delete();
  await assertMissing(item);
  assert.equal((await allIds(container)).length, 7);
});

test("item-key-mismatch-is-400", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 1 });
  await refused(400, container.item("1", "a").replace({ id: "1", pk: "b", n: 2 }));
  assert.equal((await readItem(container, "1", "a")).n, 1);
  await assertMissing(container.item("1", "b"));
});

const ifMatch = (etag) => ({ accessCondition: { type: "IfMatch", condition: etag } });

test("item-etag-if-match", async (t) => {
  const container = await freshContainer(t);
  const created = await container.items.create({ id: "1", pk: "a", n: 1 });
  const first = await created.item.replace({ id: "1", pk: "a", n: 2 }, ifMatch(created.etag));
  const second = await created.item.replace({ id: "1", pk: "a", n: 3 }, ifMatch(first.etag));
  assert.deepEqual([first.resource.n, second.resource.n], [2, 3]);
});

async function stale(t) {
  const container = await freshContainer(t);
  const { item, etag } = await container.items.create({ id: "1", pk: "a", n: 1 });
  await item.replace({ id: "1", pk: "a", n: 2 });
  return { container, item, condition: ifMatch(etag) };
}

test("item-stale-etag-is-412", async (t) => {
  const { container, item, condition } = await stale(t);
  await refused(412, item.replace({ id: "1", pk: "a", n: 3 }, condition));
  await refused(412, container.items.upsert({ id: "1", pk: "a", n: 3 }, condition));
  await refused(412, item.patch([{ op: "set", path: "/n", value: 3 }], condition));
  assert.equal((await readItem(container, "1", "a")).n, 2);
});

test("item-delete-stale-etag-is-412", async (t) => {
  const { item, condition } = await stale(t);
  await refused(412, item.delete(condition));
  await item.delete(ifMatch((await item.read()).etag));
  await assertMissing(item);
});

test("item-read-not-modified", async (t) => {
  const container = await freshContainer(t);
  const { item, etag } = await container.items.create({ id: "1", pk: "a" });
  const condition = { accessCondition: { type: "IfNoneMatch", condition: etag } };
  const unchanged = await item.read(condition);
  assert.equal(unchanged.statusCode, 304);
  assert.ok(!unchanged.resource);
  await item.replace({ id: "1", pk: "a", n: 2 });
  const changed = await item.read(condition);
  assert.equal(changed.statusCode, 200);
  assert.equal(changed.resource.n, 2);
});

test("item-no-content-response", async (t) => {
  const container = await freshContainer(t);
  // The SDK offers this for batches and bulk only.
  const operations = [
    { operationType: "Create", resourceBody: { id: "1", pk: "a", n: 1 } },
    { operationType: "Upsert", resourceBody: { id: "1", pk: "a", n: 2 } },
    { operationType: "Replace", id: "1", resourceBody: { id: "1", pk: "a", n: 3 } },
  ];
  const { result } = await container.items.batch(operations, "a", { contentResponseOnWriteEnabled: false });
  assert.deepEqual(result.map((answer) => answer.statusCode), [201, 200, 200]);
  for (const answer of result) {
    assert.ok(!answer.resourceBody, "no content was wanted");
    assert.ok(answer.eTag);
  }
  assert.equal((await readItem(container, "1", "a")).n, 3);
});

test("item-request-charge", async (t) => {
  const container = await freshContainer(t);
  const item = container.item("1", "a");
  const answers = [
    await container.items.create({ id: "1", pk: "a" }),
    await item.read(),
    await item.replace({ id: "1", pk: "a" }),
    await item.patch([{ op: "set", path: "/n", value: 1 }]),
    await container.items.query("SELECT * FROM c", { partitionKey: "a" }).fetchNext(),
    await item.delete(),
    await item.read(),
  ];
  for (const [index, answer] of answers.entries()) assert.ok(answer.requestCharge > 0, `answer ${index}`);
});

const lsnOf = (token) => Number(token.split("#")[1]);

test("item-session-token", async (t) => {
  const container = await freshContainer(t);
  const first = (await container.items.create({ id: "1", pk: "a" })).headers["x-ms-session-token"];
  const second = (await container.items.upsert({ id: "1", pk: "a", n: 2 })).headers["x-ms-session-token"];
  assert.equal(first.split(":")[0], second.split(":")[0]);
  assert.ok(lsnOf(second) > lsnOf(first));
  const other = connect({ key, consistencyLevel: "Session" });
  const same = other.database(container.database.id).container(container.id);
  const read = await same.item("1", "a").read({ sessionToken: second });
  assert.equal(read.resource.n, 2);
  assert.ok(lsnOf(read.headers["x-ms-session-token"]) >= lsnOf(second));
});

test("item-unique-key-conflict-is-409", async (t) => {
  const container = await freshContainer(t, { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
  await container.items.create({ id: "1", pk: "a", email: "x@example.com" });
  await refused(409, container.items.create({ id: "2", pk: "a", email: "x@example.com" }));
  await container.items.create({ id: "2", pk: "a", email: "y@example.com" });
  await refused(409, container.item("2", "a").replace({ id: "2", pk: "a", email: "x@example.com" }));
  await container.items.create({ id: "1", pk: "b", email: "x@example.com" });
  await container.item("1", "a").delete();
  await container.items.create({ id: "3", pk: "a", email: "x@example.com" });
});

const isGone = async (item) => (await item.read()).statusCode === 404;

test("item-ttl-expires", async (t) => {
  const container = await freshContainer(t, { defaultTtl: -1 });
  await container.items.create({ id: "short", pk: "a", ttl: 1 });
  await container.items.create({ id: "long", pk: "a" });
  await waitUntil(() => isGone(container.item("short", "a")));
  assert.deepEqual(await allIds(container), ["long"]);
  assert.equal((await container.items.create({ id: "short", pk: "a" })).statusCode, 201);
});

test("item-ttl-never", async (t) => {
  const container = await freshContainer(t, { defaultTtl: 1 });
  await container.items.create({ id: "forever", pk: "a", ttl: -1 });
  await container.items.create({ id: "default", pk: "a" });
  await waitUntil(() => isGone(container.item("default", "a")));
  assert.equal((await readItem(container, "forever", "a")).ttl, -1);
});

test("item-not-indexed", async (t) => {
  const container = await freshContainer(t);
  await container.items.create({ id: "1", pk: "a", n: 5 });
  await container.items.create({ id: "2", pk: "a", n: 5 }, { indexingDirective: "Exclude" });
  const query = "SELECT VALUE c.id FROM c WHERE c.n = 5 ORDER BY c.id";
  const { resources } = await container.items.query(query, { partitionKey: "a" }).fetchAll();
  assert.deepEqual(resources, ["1", "2"]);
});

test("item-read-feed-pages", async (t) => {
  const container = await freshContainer(t);
  const ids = range(0, 35).map((n) => String(n).padStart(2, "0"));
  await Promise.all(ids.map((id) => container.items.create({ id, pk: `key ${id}` })));
  const pages = [];
  for await (const page of container.items.readAll({ maxItemCount: 10 }).getAsyncIterator()) {
    pages.push(page.resources.map((item) => item.id));
  }
  assert.deepEqual(pages.flat().sort(), ids);
  assert.ok(pages.length >= 4 && pages.every((page) => page.length <= 10), JSON.stringify(pages));
  const first = await container.items.readAll({ maxItemCount: 10 }).fetchNext();
  assert.ok(first.continuationToken);
  const rest = await container.items.readAll({ maxItemCount: 10, continuationToken: first.continuationToken }).fetchAll();
  assert.deepEqual([...first.resources, ...rest.resources].map((item) => item.id).sort(), ids);
});

test("item-concurrent-creates-one-wins", async (t) => {
  const container = await freshContainer(t);
  const creates = range(0, 32).map((n) => container.items.create({ id: "1", pk: "a", n }));
  const codes = (await Promise.allSettled(creates)).map(({ value, reason }) => value?.statusCode ?? reason.code);
  assert.deepEqual(codes.sort(), [201, ...Array(31).fill(409)]);
});
