import assert from "node:assert/strict";
import { test } from "node:test";

import { client, freshDatabase, refused, unique } from "./support.js";

test("database-create-read-delete", async () => {
  const id = unique("db");
  const created = await client.databases.create({ id });
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource.id, id);
  assert.equal(created.resource._self, `dbs/${created.resource._rid}/`);
  assert.equal(created.headers.etag, created.resource._etag);
  const read = await client.database(id).read();
  assert.equal(read.statusCode, 200);
  assert.deepEqual(read.resource, created.resource);
  assert.equal((await client.database(id).delete()).statusCode, 204);
  await refused(404, client.database(id).read());
});

test("database-create-twice-is-409", async (t) => {
  const database = await freshDatabase(t);
  await refused(409, client.databases.create({ id: database.id }));
});

test("database-missing-is-404", async () => {
  await refused(404, client.database(unique("db")).read());
  await refused(404, client.database(unique("db")).delete());
});

test("database-create-if-not-exists", async () => {
  const id = unique("db");
  const first = await client.databases.createIfNotExists({ id });
  const second = await client.databases.createIfNotExists({ id });
  assert.deepEqual([first.statusCode, second.statusCode], [201, 200]);
  assert.equal(first.resource._rid, second.resource._rid);
  await first.database.delete();
});

const listed = async (options) => (await client.databases.readAll(options).fetchAll()).resources.map((found) => found.id);

test("database-list", async (t) => {
  const [one, two] = [await freshDatabase(t), await freshDatabase(t)];
  const all = await listed();
  assert.ok(all.includes(one.id) && all.includes(two.id));
  assert.equal(new Set(all).size, all.length);
  const paged = await listed({ maxItemCount: 1 });
  assert.ok(paged.includes(one.id) && paged.includes(two.id));
});

test("database-query-by-id", async (t) => {
  const database = await freshDatabase(t);
  const byId = (id) => ({ query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: id }] });
  const found = await client.databases.query(byId(database.id)).fetchAll();
  assert.deepEqual(found.resources, [(await database.read()).resource]);
  assert.deepEqual((await client.databases.query(byId(unique("db"))).fetchAll()).resources, []);
});

test("database-shared-throughput", async (t) => {
  const database = await freshDatabase(t, { throughput: 500 });
  const { resource, offer } = await database.readOffer();
  assert.equal(resource.content.offerThroughput, 500);
  resource.content.offerThroughput = 600;
  assert.equal((await offer.replace(resource)).resource.content.offerThroughput, 600);
  assert.equal((await database.readOffer()).resource.content.offerThroughput, 600);
});

test("database-name-invalid-is-400", async (t) => {
  await assert.rejects(client.databases.create({ id: "with/slash" }), { message: /illegal/ });
  t.skip("the SDK refuses such a name itself, so the server never sees it");
});
