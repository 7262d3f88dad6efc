import assert from "node:assert/strict";
import { test } from "node:test";

import { client, freshContainer, freshDatabase, partitions, range, refused, unique } from "./support.js";

const defaultPolicy = {
  indexingMode: "consistent",
  automatic: true,
  includedPaths: [{ path: "/*" }],
  excludedPaths: [{ path: '/"_etag"/?' }],
};
const customPolicy = {
  indexingMode: "consistent",
  automatic: true,
  includedPaths: [{ path: "/*" }],
  excludedPaths: [{ path: "/secret/*" }, { path: '/"_etag"/?' }],
  compositeIndexes: [
    [
      { path: "/name", order: "ascending" },
      { path: "/age", order: "descending" },
    ],
  ],
  spatialIndexes: [{ path: "/place/*", types: ["Point", "LineString", "Polygon", "MultiPolygon"] }],
};

const definition = async (container) => (await container.read()).resource;

test("container-create-read-delete", async (t) => {
  const database = await freshDatabase(t);
  const id = unique("items");
  const partitionKey = { paths: ["/pk"], kind: "Hash", version: 2 };
  const created = await database.containers.create({ id, partitionKey });
  assert.equal(created.statusCode, 201);
  assert.equal(created.resource.id, id);
  assert.deepEqual(created.resource.partitionKey, partitionKey);
  assert.equal(created.headers.etag, created.resource._etag);
  const read = await created.container.read();
  assert.equal(read.statusCode, 200);
  assert.deepEqual(read.resource, created.resource);
  assert.equal((await created.container.delete()).statusCode, 204);
  await refused(404, created.container.read());
});

test("container-create-twice-is-409", async (t) => {
  const container = await freshContainer(t);
  await refused(409, container.database.containers.create({ id: container.id, partitionKey: "/pk" }));
});

test("container-missing-is-404", async (t) => {
  const database = await freshDatabase(t);
  await refused(404, database.container(unique("items")).read());
  await refused(404, database.container(unique("items")).delete());
  await refused(404, client.database(unique("db")).containers.create({ id: "items", partitionKey: "/pk" }));
});

test("container-odd-name", async (t) => {
  const database = await freshDatabase(t);
  const { container } = await database.containers.create({ id: "100% größe", partitionKey: "/pk" });
  await container.items.upsert({ id: "1", pk: "a", n: 1 });
  assert.equal((await container.item("1", "a").read()).resource.n, 1);
  const { resources } = await container.items.query("SELECT VALUE c.n FROM c", { partitionKey: "a" }).fetchAll();
  assert.deepEqual(resources, [1]);
  assert.equal((await definition(container)).id, "100% größe");
});

test("container-list-and-query", async (t) => {
  const one = await freshContainer(t);
  const { container: two } = await one.database.containers.create({ id: unique("items"), partitionKey: "/pk" });
  const { resources: listed } = await one.database.containers.readAll().fetchAll();
  assert.deepEqual(listed.map((found) => found.id).sort(), [one.id, two.id].sort());
  const byId = { query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: two.id }] };
  const { resources: found } = await one.database.containers.query(byId).fetchAll();
  assert.deepEqual(found.map((one) => one._rid), [(await definition(two))._rid]);
});

test("container-default-indexing-policy", async (t) => {
  assert.deepEqual((await definition(await freshContainer(t))).indexingPolicy, defaultPolicy);
});

test("container-custom-indexing-policy", async (t) => {
  const container = await freshContainer(t, { indexingPolicy: customPolicy });
  assert.deepEqual((await definition(container)).indexingPolicy, customPolicy);
});

test("container-replace-indexing-policy", async (t) => {
  const container = await freshContainer(t);
  const before = await definition(container);
  const { statusCode, resource: after } = await container.replace({ ...before, indexingPolicy: customPolicy });
  assert.equal(statusCode, 200);
  assert.deepEqual(after.indexingPolicy, customPolicy);
  assert.equal(after._rid, before._rid);
  assert.notEqual(after._etag, before._etag);
  assert.deepEqual(await definition(container), after);
});

test("container-replace-ttl", async (t) => {
  const container = await freshContainer(t);
  const before = await definition(container);
  assert.equal(before.defaultTtl, undefined);
  await container.replace({ ...before, defaultTtl: 3600 });
  assert.equal((await definition(container)).defaultTtl, 3600);
  await container.replace({ ...before, defaultTtl: -1 });
  assert.equal((await definition(container)).defaultTtl, -1);
});

test("container-partition-key-cannot-change", async (t) => {
  const container = await freshContainer(t);
  const other = { paths: ["/other"], kind: "Hash", version: 2 };
  await refused(400, container.replace({ ...(await definition(container)), partitionKey: other }));
  assert.deepEqual((await definition(container)).partitionKey.paths, ["/pk"]);
});

test("container-hierarchical-key", async (t) => {
  const partitionKey = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
  assert.deepEqual((await definition(await freshContainer(t, { partitionKey }))).partitionKey, partitionKey);
});

test("container-unique-keys-shown", async (t) => {
  const uniqueKeyPolicy = { uniqueKeys: [{ paths: ["/email"] }, { paths: ["/name/first", "/name/last"] }] };
  assert.deepEqual((await definition(await freshContainer(t, { uniqueKeyPolicy }))).uniqueKeyPolicy, uniqueKeyPolicy);
});

test("container-manual-throughput", async (t) => {
  const container = await freshContainer(t, { throughput: 500 });
  const { resource, offer } = await container.readOffer();
  assert.equal(resource.content.offerThroughput, 500);
  assert.equal(resource.offerResourceId, (await definition(container))._rid);
  resource.content.offerThroughput = 700;
  const replaced = await offer.replace(resource);
  assert.equal(replaced.statusCode, 200);
  assert.equal(replaced.resource.content.offerThroughput, 700);
  assert.equal((await container.readOffer()).resource.content.offerThroughput, 700);
});

test("container-autoscale-throughput", async (t) => {
  const container = await freshContainer(t, { maxThroughput: 4000 });
  const { resource, offer } = await container.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
  resource.content.offerAutopilotSettings.maxThroughput = 6000;
  await offer.replace(resource);
  assert.equal((await container.readOffer()).resource.content.offerAutopilotSettings.maxThroughput, 6000);
});

const migrating = (header) => ({ initialHeaders: { [header]: "true" } });

test("throughput-manual-to-autoscale", async (t) => {
  const container = await freshContainer(t, { throughput: 500 });
  const { resource, offer } = await container.readOffer();
  const content = { offerAutopilotSettings: { maxThroughput: 4000 } };
  const { statusCode } = await offer.replace({ ...resource, content }, migrating("x-ms-cosmos-migrate-offer-to-autopilot"));
  assert.equal(statusCode, 200);
  assert.equal((await container.readOffer()).resource.content.offerAutopilotSettings.maxThroughput, 4000);
});

test("throughput-autoscale-to-manual", async (t) => {
  const container = await freshContainer(t, { maxThroughput: 4000 });
  const { resource, offer } = await container.readOffer();
  const manual = { ...resource, content: { offerThroughput: 700 } };
  const { statusCode } = await offer.replace(manual, migrating("x-ms-cosmos-migrate-offer-to-manual-throughput"));
  assert.equal(statusCode, 200);
  const { content } = (await container.readOffer()).resource;
  assert.equal(content.offerThroughput, 700);
  assert.equal(content.offerAutopilotSettings, undefined);
});

test("container-feed-ranges", async (t) => {
  const container = await freshContainer(t);
  await Promise.all(range(0, 40).map((n) => container.items.create({ id: String(n), pk: `key ${n}` })));
  const ranges = [...(await container.getFeedRanges())].sort((a, b) => (a.minInclusive < b.minInclusive ? -1 : 1));
  assert.equal(ranges.length, 4);
  assert.equal((await partitions(container)).length, 4);
  assert.equal(ranges[0].minInclusive, "");
  assert.equal(ranges[3].maxExclusive, "FF");
  for (const [index, next] of ranges.slice(1).entries()) assert.equal(ranges[index].maxExclusive, next.minInclusive);
});
