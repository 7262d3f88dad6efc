// What the tests share: where the server is, containers to work in, how a refusal looks, and the administration calls.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { CosmosClient } from "@azure/cosmos";

export const endpoint = process.env.ORRERY_ENDPOINT;
export const key = process.env.ORRERY_KEY;
export const readOnlyKey = process.env.ORRERY_READ_ONLY_KEY;
export const caPath = process.env.ORRERY_CA;

export const unique = (prefix) => `${prefix}-${randomUUID().slice(0, 13)}`;

const clients = [];

/** A client that is put away when the file's tests are over. */
export function connect(options) {
  const client = new CosmosClient({ endpoint, ...options });
  clients.push(client);
  return client;
}

after(() => clients.forEach((client) => client.dispose()));

export const client = connect({ key });

export async function freshDatabase(t, options = {}) {
  const { database } = await client.databases.create({ id: unique("db"), ...options });
  t.after(() => database.delete());
  return database;
}

export async function freshContainer(t, options = {}) {
  const database = await freshDatabase(t);
  const { container } = await database.containers.create({ id: unique("items"), partitionKey: "/pk", ...options });
  return container;
}

/** Expects the promise to be refused with this status; gives the error to look at. */
export async function refused(status, promise) {
  const error = await promise.then(
    (response) => assert.fail(`expected ${status}, got ${response.statusCode}`),
    (caught) => caught,
  );
  assert.equal(error.code, status, error.message);
  return error;
}

/** The SDK gives a missing item as an answer instead of throwing. */
export async function assertMissing(item) {
  const { statusCode, resource } = await item.read();
  assert.equal(statusCode, 404);
  assert.equal(resource, undefined);
}

export async function readItem(container, id, partitionKey) {
  const { statusCode, resource } = await container.item(id, partitionKey).read();
  assert.equal(statusCode, 200);
  return resource;
}

export async function allIds(container) {
  const { resources } = await container.items.readAll().fetchAll();
  return resources.map((item) => item.id).sort();
}

/** The item without what the server adds. */
export const userPart = (item) => Object.fromEntries(Object.entries(item).filter(([name]) => !name.startsWith("_")));

export async function waitUntil(condition, seconds = 15) {
  const deadline = Date.now() + seconds * 1000;
  while (Date.now() < deadline) {
    if (await condition()) return;
    await pause(50);
  }
  assert.fail(`not within ${seconds} s`);
}

export const range = (from, to) => Array.from({ length: to - from }, (_, index) => from + index);

/** Signed like any request: empty resource type, the path as the link. */
export async function administer(method, path, query = "", body = undefined, server = endpoint) {
  const date = new Date().toUTCString();
  const text = `${method.toLowerCase()}\n\n${path}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
  const answer = await fetch(server + path + query, {
    method,
    body: body && JSON.stringify(body),
    headers: {
      authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
      "x-ms-date": date,
      "x-ms-version": "2020-07-15",
    },
  });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status}`);
  return answer.json();
}

/** From left to right. */
export async function partitions(container) {
  const names = new URLSearchParams({ database: container.database.id, container: container.id });
  const listed = (await administer("GET", "_orrery/v1/partitions", `?${names}`)).partitions;
  return listed.sort((one, other) => (one.minInclusive < other.minInclusive ? -1 : 1));
}

async function reshape(container, action, form) {
  const names = { database: container.database.id, container: container.id };
  await administer("POST", `_orrery/v1/partitions/${action}`, "", { ...names, ...form });
}

/** Splits one partition, counted from the left. */
export async function split(container, index) {
  await reshape(container, "split", { partition: (await partitions(container))[index].partition });
}

/** Makes a partition, counted from the left, and its right neighbour one. */
export async function merge(container, index) {
  const pair = (await partitions(container)).slice(index, index + 2);
  await reshape(container, "merge", { partitions: pair.map(({ partition }) => partition) });
}

/** The new secondary key; the one before is worth nothing from now on. */
export const rotateSecondaryKey = async () => (await administer("POST", "_orrery/v1/keys/secondary/rotate")).key;

/** Splits every partition the container has now. */
export async function splitAll(container) {
  const before = await partitions(container);
  for (const { partition } of before) await reshape(container, "split", { partition });
  assert.equal((await partitions(container)).length, 2 * before.length);
}
