import assert from "node:assert/strict";
import { test } from "node:test";

import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";

import { connect, freshContainer, key, merge, range, readItem, split, splitAll, waitUntil } from "./support.js";

/** What is there now, and the continuation to go on with: an iterator is caught up when every range has said so. */
async function read(container, options) {
  const iterator = container.items.getChangeFeedIterator(options);
  const found = [];
  const RANGES_MAX = 8;
  let continuation;
  for (let nEmpty = 0; nEmpty <= RANGES_MAX; ) {
    const page = await iterator.readNext();
    nEmpty = page.statusCode === 304 ? nEmpty + 1 : 0;
    found.push(...page.result);
    continuation = page.continuationToken;
  }
  return { found, continuation };
}

const fromBeginning = { changeFeedStartFrom: ChangeFeedStartFrom.Beginning() };

const fill = (container, numbers, n) =>
  Promise.all(numbers.map((number) => container.items.upsert({ id: String(number), pk: `key ${number}`, n })));

const seen = (changes) => changes.map((change) => `${change.id}:${change.n}`).sort();
const wanted = (numbers, n) => numbers.map((number) => `${number}:${n}`).sort();

test("feed-latest-versions", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 30), 1);
  await fill(container, range(0, 10), 2);
  await container.item("29", "key 29").delete();
  const { found } = await read(container, { maxItemCount: 4, ...fromBeginning });
  assert.deepEqual(seen(found), [...wanted(range(0, 10), 2), ...wanted(range(10, 29), 1)].sort());
  assert.ok(found.every((change) => change._lsn > 0 && change._etag && change._rid));
});

test("feed-resume", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 20), 1);
  const first = await read(container, fromBeginning);
  assert.deepEqual(seen(first.found), wanted(range(0, 20), 1));
  await fill(container, range(15, 25), 2);
  const next = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(first.continuation) });
  assert.deepEqual(seen(next.found), wanted(range(15, 25), 2));
  const last = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(next.continuation) });
  assert.deepEqual(last.found, []);
});

test("feed-from-now", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 10), 1);
  const first = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  assert.deepEqual(first.found, []);
  await fill(container, range(0, 5), 2);
  const next = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(first.continuation) });
  assert.deepEqual(seen(next.found), wanted(range(0, 5), 2));
});

test("feed-from-time", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 5), 1);
  const stamps = await Promise.all(range(0, 5).map((n) => readItem(container, String(n), `key ${n}`)));
  const last = Math.max(...stamps.map((item) => item._ts));
  await waitUntil(async () => {
    await fill(container, [9], 2);
    return (await readItem(container, "9", "key 9"))._ts > last;
  });
  const { found } = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Time(new Date(last * 1000)) });
  assert.deepEqual(seen(found), wanted([9], 2));
});

test("feed-logical-key", async (t) => {
  const container = await freshContainer(t);
  for (const n of range(0, 6)) {
    for (const pk of ["a", "b"]) await container.items.create({ id: String(n), pk, n });
  }
  const { found } = await read(container, { maxItemCount: 2, changeFeedStartFrom: ChangeFeedStartFrom.Beginning("a") });
  assert.deepEqual(found.map((change) => [change.pk, change.n]), range(0, 6).map((n) => ["a", n]));
});

test("feed-ranges-cover-everything", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 30), 1);
  const ranges = await container.getFeedRanges();
  assert.equal(ranges.length, 4);
  const changes = [];
  for (const one of ranges) {
    changes.push(...(await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(one) })).found);
  }
  assert.deepEqual(seen(changes), wanted(range(0, 30), 1));
});

test("feed-after-split", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 30), 1);
  const first = await read(container, fromBeginning);
  assert.equal(first.found.length, 30);
  await splitAll(container);
  await fill(container, range(10, 20), 2);
  const next = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(first.continuation) });
  assert.deepEqual(seen(next.found), wanted(range(10, 20), 2));
});

test("feed-all-versions", async (t) => {
  const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10));
  const container = await freshContainer(t, { changeFeedPolicy });
  const changeFeedMode = ChangeFeedMode.AllVersionsAndDeletes;
  const first = await read(container, { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  assert.deepEqual(first.found, []);
  for (const n of range(0, 3)) await container.items.upsert({ id: "1", pk: "a", n });
  await container.item("1", "a").delete();
  const changeFeedStartFrom = ChangeFeedStartFrom.Continuation(first.continuation);
  const { found } = await read(container, { changeFeedMode, changeFeedStartFrom });
  assert.deepEqual(found.map((change) => change.metadata.operationType), ["create", "replace", "replace", "delete"]);
  assert.deepEqual(found.map((change) => change.current.n), [0, 1, 2, undefined]);
  const gone = found[3].metadata;
  assert.deepEqual([gone.id, gone.partitionKey], ["1", { pk: "a" }]);
  assert.equal(gone.previousImageLSN, found[2].metadata.lsn);
});

test("feed-batch-uncut", async (t) => {
  const container = await freshContainer(t);
  const create = (id, n) => ({ operationType: "Create", resourceBody: { id, pk: "a", n } });
  const made = await container.items.batch(range(0, 50).map((n) => create(`b${n}`, n)), "a");
  assert.equal(made.code, 200);
  const failed = await container.items.batch([create("new", 0), create("b0", 0)], "a");
  assert.deepEqual(failed.result.map(({ statusCode }) => statusCode), [424, 409]);
  const iterator = container.items.getChangeFeedIterator({ maxItemCount: 10, ...fromBeginning });
  const pages = [];
  for (let n = 0; n < 16; n++) {
    const { result } = await iterator.readNext();
    if (result.length > 0) pages.push(result);
  }
  assert.equal(pages.length, 1);
  assert.deepEqual(pages[0].map((change) => change.n), range(0, 50));
  assert.equal(new Set(pages[0].map((change) => change._lsn)).size, 1);
});

const changeFeedMode = ChangeFeedMode.AllVersionsAndDeletes;
const keepingVersions = () => ({ changeFeedPolicy: new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10)) });
const after = (continuation) => ({ changeFeedStartFrom: ChangeFeedStartFrom.Continuation(continuation) });

test("feed-all-versions-expiry", async (t) => {
  const container = await freshContainer(t, { defaultTtl: -1, ...keepingVersions() });
  let { continuation } = await read(container, { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  await container.items.create({ id: "1", pk: "a", ttl: 1 });
  const changes = [];
  await waitUntil(async () => {
    const next = await read(container, { changeFeedMode, ...after(continuation) });
    changes.push(...next.found);
    continuation = next.continuation;
    return changes.length === 2;
  });
  assert.deepEqual(changes.map((change) => change.metadata.operationType), ["create", "delete"]);
  const [made, gone] = changes;
  assert.equal(gone.metadata.timeToLiveExpired, true);
  assert.ok(!made.metadata.timeToLiveExpired);
  assert.deepEqual([gone.metadata.id, gone.current], ["1", {}]);
  assert.deepEqual((await read(container, fromBeginning)).found, []);
});

test("feed-hierarchical-key", async (t) => {
  const partitionKey = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
  const container = await freshContainer(t, { partitionKey, ...keepingVersions() });
  const first = await read(container, { changeFeedMode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
  const items = range(0, 20).map((n) => ({ id: "1", tenant: `t${n}`, user: `u${n % 3}`, session: n }));
  for (const item of items) await container.items.create(item);
  await container.item("1", ["t7", "u1", 7]).delete();
  const { found } = await read(container, { changeFeedMode, ...after(first.continuation) });
  const gone = found.filter((change) => change.metadata.operationType === "delete");
  assert.deepEqual(gone.map((change) => change.metadata.partitionKey), [{ tenant: "t7", user: "u1", session: 7 }]);
  const sessions = [];
  for (const one of await container.getFeedRanges()) {
    const part = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(one) });
    sessions.push(...part.found.map((change) => change.session));
  }
  const numerically = (one, other) => one - other;
  assert.deepEqual(sessions.sort(numerically), range(0, 20).filter((n) => n !== 7));
  const key = await read(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning(["t5", "u2", 5]) });
  assert.deepEqual(key.found.map((change) => change.session), [5]);
});

/** A continuation from before the partitions change goes on after it. */
async function goesOn(t, reshape) {
  const container = await freshContainer(t);
  await fill(container, range(0, 30), 1);
  const first = await read(container, fromBeginning);
  assert.equal(first.found.length, 30);
  await fill(container, range(0, 10), 2);
  await reshape(container);
  await fill(container, range(20, 30), 2);
  const next = await read(container, after(first.continuation));
  assert.deepEqual(seen(next.found), wanted([...range(0, 10), ...range(20, 30)], 2));
  await fill(container, range(0, 30), 3);
  assert.deepEqual(seen((await read(container, after(next.continuation))).found), wanted(range(0, 30), 3));
}

test("feed-after-merge", (t) => goesOn(t, (container) => merge(container, 1)));

test("feed-after-merge-and-split", (t) =>
  goesOn(t, async (container) => {
    // Three of four quarters become one, whose middle was no bound before.
    await merge(container, 0);
    await merge(container, 0);
    await split(container, 0);
  }));

test("feed-foreign-continuation", async (t) => {
  const container = await freshContainer(t);
  await fill(container, range(0, 5), 1);
  const { continuation } = await read(container, fromBeginning);
  const other = await freshContainer(t);
  await fill(other, range(0, 5), 1);
  await assert.rejects(read(other, after(continuation)));
  await container.delete();
  await container.database.containers.create({ id: container.id, partitionKey: "/pk" });
  // A client that has not known the old one.
  const again = connect({ key }).database(container.database.id).container(container.id);
  await fill(again, range(0, 5), 1);
  await assert.rejects(read(again, after(continuation)));
});

test("feed-other-mode-continuation", { skip: "A continuation of the SDK does not say of which mode it is." }, () => {});

test("processor-latest-versions-killed", { skip: "The SDK has no change feed processor." }, () => {});
test("processor-latest-versions", { skip: "The SDK has no change feed processor." }, () => {});
test("processor-all-versions", { skip: "The SDK has no change feed processor." }, () => {});
test("processor-all-versions-killed", { skip: "The SDK has no change feed processor." }, () => {});
