import assert from "node:assert/strict";
import { test } from "node:test";

import {
  allIds,
  connect,
  freshContainer,
  key,
  merge,
  partitions,
  range,
  readItem,
  split,
  splitAll,
} from "./support.js";

const create = (container, numbers) =>
  Promise.all(numbers.map((n) => container.items.create({ id: String(n), pk: `key ${n}`, n })));

test("split-keeps-items", async (t) => {
  const container = await freshContainer(t);
  await create(container, range(0, 40));
  assert.equal((await allIds(container)).length, 40);
  assert.equal((await container.getFeedRanges()).length, 4);
  await splitAll(container);
  for (const n of range(0, 40)) assert.equal((await readItem(container, String(n), `key ${n}`)).n, n);
  await create(container, range(40, 60));
  assert.deepEqual(await allIds(container), range(0, 60).map(String).sort());
  const { resources } = await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll();
  assert.deepEqual(resources, [60]);
});

test("split-old-session-token", async (t) => {
  const container = await freshContainer(t);
  const tokens = (await create(container, range(0, 20))).map((created) => created.headers["x-ms-session-token"]);
  for (const token of tokens) assert.match(token, /^\d+:\d+#\d+/);
  await splitAll(container);
  const fresh = connect({ key, consistencyLevel: "Session" });
  const same = fresh.database(container.database.id).container(container.id);
  for (const [n, sessionToken] of tokens.entries()) {
    const { statusCode, resource } = await same.item(String(n), `key ${n}`).read({ sessionToken });
    assert.equal(statusCode, 200);
    assert.equal(resource.n, n);
  }
});

/** Writes sixty items; gives the session token of each. */
async function fill(container, n) {
  const writes = range(0, 60).map((number) => container.items.upsert({ id: String(number), pk: `key ${number}`, n }));
  return (await Promise.all(writes)).map((written) => written.headers["x-ms-session-token"]);
}

test("merge-under-paging", async (t) => {
  const container = await freshContainer(t);
  const beforeSplit = await fill(container, 1);
  const nBefore = (await partitions(container)).length;
  await split(container, 0);
  assert.equal((await partitions(container)).length, nBefore + 1);
  const beforeMerge = await fill(container, 2);
  const iterator = container.items.query("SELECT VALUE c.id FROM c", { maxItemCount: 4 });
  const found = (await iterator.fetchNext()).resources;
  assert.ok(found.length >= 1 && found.length <= 4);
  await merge(container, 0);
  assert.equal((await partitions(container)).length, nBefore);
  while (iterator.hasMoreResults()) found.push(...((await iterator.fetchNext()).resources ?? []));
  assert.deepEqual(found.sort(), range(0, 60).map(String).sort());
  const fresh = connect({ key, consistencyLevel: "Session" });
  const same = fresh.database(container.database.id).container(container.id);
  for (const number of range(0, 60)) {
    for (const sessionToken of [beforeSplit[number], beforeMerge[number]]) {
      const { statusCode, resource } = await same.item(String(number), `key ${number}`).read({ sessionToken });
      assert.equal(statusCode, 200);
      assert.equal(resource.n, 2);
    }
    assert.equal((await readItem(container, String(number), `key ${number}`)).n, 2);
  }
});
