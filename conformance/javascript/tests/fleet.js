// The account of three regions: its clients, its administration, and who answered what.

import assert from "node:assert/strict";

import { administer, connect, key, unique, waitUntil } from "./support.js";

const globalEndpoint = process.env.ORRERY_REGIONS_ENDPOINT;
const endpoints = JSON.parse(process.env.ORRERY_REGIONS);
export const regions = Object.keys(endpoints);
export const [WRITER, NEXT, LAST] = regions;
/** Not one of them, for those who add one. */
export const ADDED = "Japan East";

/** A client that prefers this region, then the others in their order. */
export function prefer(region) {
  const preferredLocations = [region, ...regions.filter((name) => name !== region)];
  // The SDK sends its session tokens only when the level is named.
  const consistencyLevel = "Session";
  return connect({ endpoint: globalEndpoint, key, consistencyLevel, connectionPolicy: { preferredLocations } });
}

export const seenBy = (client, container) => client.database(container.database.id).container(container.id);

export const manage = (method, path, body, query = "") =>
  administer(method, `_orrery/v1/${encodeURI(path)}`, query, body, globalEndpoint);

/** Removes a region unless it is gone already. */
export async function forget(region) {
  const known = (await manage("GET", "regions")).regions;
  if (known.some(({ name }) => name === region)) await manage("DELETE", `regions/${region}`);
}

/** Removes a region, and works while it tells its clients to go elsewhere. */
export async function whileRemoved(region, work) {
  const removed = manage("DELETE", `regions/${region}`, undefined, "?drainMs=2000");
  const isDraining = ({ name, state }) => name === region && state === "draining";
  await waitUntil(async () => (await manage("GET", "regions")).regions.some(isDraining));
  await work();
  await removed;
}

/** Until every region that is online has everything. */
export const waitLevel = () =>
  waitUntil(async () => (await manage("GET", "regions")).regions.every((region) => region.lagTransactionsTotal === 0));

/** The way from the write region to others behaves like this for a while. */
export async function withLinks(others, settings, work) {
  const set = (settings) => Promise.all(others.map((to) => manage("PUT", "links", { from: WRITER, to, ...settings })));
  await set(settings);
  try {
    return await work();
  } finally {
    await set({});
  }
}

/** How many requests a region has answered with success, by its own count. */
export async function answered(operation, region) {
  const text = await (await fetch(`${endpoints[region]}metrics`)).text();
  const pattern = new RegExp(`orrery_requests_total{operation="${operation}",status="2\\d\\d"} (\\d+)`, "g");
  return [...text.matchAll(pattern)].reduce((sum, match) => sum + Number(match[1]), 0);
}

/** Expects the work to be answered so many times by each of these regions. */
export async function answers(operation, expected, work) {
  const count = async () => Promise.all(Object.keys(expected).map((region) => answered(operation, region)));
  const before = await count();
  await work();
  const after = await count();
  const found = Object.keys(expected).map((region, index) => [region, after[index] - before[index]]);
  assert.deepEqual(Object.fromEntries(found), expected);
}

/** One region answers so many times, the others never. */
export const only = (region, count) => Object.fromEntries(regions.map((name) => [name, name === region ? count : 0]));

export async function freshContainer(t) {
  const { database } = await connect({ endpoint: globalEndpoint, key }).databases.create({ id: unique("db") });
  t.after(() => database.delete());
  const { container } = await database.containers.create({ id: "items", partitionKey: "/pk" });
  await waitLevel();
  return container;
}
