import assert from "node:assert/strict";
import { test } from "node:test";

import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";

import { freshContainer, range, readItem, splitAll, waitUntil } from "./support.js";

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

test("processor-latest-versions", { skip: "The SDK has no change feed processor." }, () => {});
test("processor-all-versions", { skip: "The SDK has no change feed processor." }, () => {});
test("processor-all-versions-killed", { skip: "The SDK has no change feed processor." }, () => {});
