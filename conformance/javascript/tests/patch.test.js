import assert from "node:assert/strict";
import { test } from "node:test";

import { freshContainer, readItem, refused, userPart } from "./support.js";

/** Creates an item, patches it and shows what came of it. */
async function patched(t, before, body) {
  const container = await freshContainer(t);
  const { item } = await container.items.create({ id: "1", pk: "a", ...before });
  const { statusCode, resource } = await item.patch(body);
  assert.equal(statusCode, 200);
  assert.deepEqual(await readItem(container, "1", "a"), resource);
  const { id, pk, ...after } = userPart(resource);
  assert.deepEqual([id, pk], ["1", "a"]);
  return after;
}

test("patch-set-add-replace-remove", async (t) => {
  const after = await patched(t, { name: "Ada", age: 36, old: 1, address: { city: "London", zip: "N1" } }, [
    { op: "set", path: "/name", value: "Grace" },
    { op: "set", path: "/address/country", value: "UK" },
    { op: "add", path: "/address/street", value: { name: "High", no: 1 } },
    { op: "replace", path: "/age", value: 37 },
    { op: "remove", path: "/old" },
    { op: "remove", path: "/address/zip" },
  ]);
  const address = { city: "London", country: "UK", street: { name: "High", no: 1 } };
  assert.deepEqual(after, { name: "Grace", age: 37, address });
});

test("patch-increment", async (t) => {
  const after = await patched(t, { n: 40, f: 0.5, deep: { n: 1 } }, [
    { op: "incr", path: "/n", value: 2 },
    { op: "incr", path: "/f", value: -1.25 },
    { op: "incr", path: "/deep/n", value: 1 },
    { op: "incr", path: "/fresh", value: 7 },
  ]);
  assert.deepEqual(after, { n: 42, f: -0.75, deep: { n: 2 }, fresh: 7 });
});

test("patch-array-insert-append", async (t) => {
  const after = await patched(t, { list: ["b", "d"], kept: [1, 2] }, [
    { op: "add", path: "/list/0", value: "a" },
    { op: "add", path: "/list/2", value: "c" },
    { op: "add", path: "/list/-", value: "e" },
    { op: "set", path: "/kept/1", value: 20 },
    { op: "remove", path: "/kept/0" },
  ]);
  assert.deepEqual(after, { list: ["a", "b", "c", "d", "e"], kept: [20] });
});

test("patch-move", async (t) => {
  const operations = [{ op: "move", from: "/from/value", path: "/to/value" }];
  assert.deepEqual(await patched(t, { from: { value: [1, 2] }, to: {} }, operations), { from: {}, to: { value: [1, 2] } });
});

const takeOne = { condition: "FROM c WHERE c.stock > 0", operations: [{ op: "incr", path: "/stock", value: -1 }] };

test("patch-condition-holds", async (t) => {
  assert.deepEqual(await patched(t, { stock: 5 }, takeOne), { stock: 4 });
});

test("patch-condition-fails-is-412", async (t) => {
  const container = await freshContainer(t);
  const { item, resource: before } = await container.items.create({ id: "1", pk: "a", stock: 0 });
  await refused(412, item.patch(takeOne));
  assert.deepEqual(await readItem(container, "1", "a"), before);
});

test("patch-missing-path-is-400", async (t) => {
  const container = await freshContainer(t);
  const { item, resource: before } = await container.items.create({ id: "1", pk: "a", n: 1 });
  const fine = { op: "set", path: "/n", value: 2 };
  await refused(400, item.patch([fine, { op: "remove", path: "/missing" }]));
  await refused(400, item.patch([fine, { op: "replace", path: "/missing", value: 1 }]));
  await refused(400, item.patch([fine, { op: "set", path: "/no/parent", value: 1 }]));
  assert.deepEqual(await readItem(container, "1", "a"), before);
});

test("patch-missing-item-is-404", async (t) => {
  const container = await freshContainer(t);
  await refused(404, container.item("1", "a").patch([{ op: "set", path: "/n", value: 2 }]));
});
