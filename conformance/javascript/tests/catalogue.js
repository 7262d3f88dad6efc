// The data of the query scenarios: 120 items of 40 keys in a container of eight physical partitions. See ../../README.md.

import assert from "node:assert/strict";

import { connect, freshContainer, key, partitions, range, splitAll } from "./support.js";

export const N_ITEMS = 120;
const N_PARTITIONS = 8;

const definition = {
  indexingPolicy: {
    includedPaths: [{ path: "/*" }],
    excludedPaths: [{ path: "/vector/*" }],
    compositeIndexes: [[{ path: "/tie", order: "ascending" }, { path: "/n", order: "descending" }]],
    vectorIndexes: [{ path: "/vector", type: "flat" }],
    fullTextIndexes: [{ path: "/text" }],
  },
  vectorEmbeddingPolicy: {
    vectorEmbeddings: [{ path: "/vector", dataType: "float32", dimensions: 2, distanceFunction: "euclidean" }],
  },
  fullTextPolicy: { defaultLanguage: "en-US", fullTextPaths: [{ path: "/text", language: "en-US" }] },
  throughput: 10_000 * N_PARTITIONS,
};

/** Ten items speak of comets: the first once, the last ten times. */
const cometRank = (i) => (i % 12 ? 0 : i / 12 + 1);
export const idOfRank = (rank) => String((rank - 1) * 12);

function makeItem(i) {
  const n = (i * 37) % N_ITEMS;
  const rank = cometRank(i);
  return {
    id: String(i),
    pk: `key ${i % 40}`,
    n,
    tie: i % 4,
    family: `family ${i % 5}`,
    text: [...Array(rank).fill("comet"), ...Array(20 - rank).fill("dust")].join(" "),
    vector: [rank ? 1000 + ((rank * 7) % 11) : n, 1],
    mixed: [undefined, null, i % 4 === 2, n, `text ${String(n).padStart(3, "0")}`][i % 5],
  };
}

export const items = range(0, N_ITEMS).map(makeItem);

export async function freshCatalogue(t) {
  const container = await freshContainer(t, definition);
  assert.equal((await partitions(container)).length, N_PARTITIONS);
  await Promise.all(items.map((item) => container.items.create(item)));
  return container;
}

/** The rows of all pages from here on; what happens after the first is up to the caller. */
export async function rows(container, query, options, afterFirst = async () => {}) {
  const iterator = container.items.query(query, { maxItemCount: 10, ...options });
  const found = [];
  for (let nPages = 0; iterator.hasMoreResults(); nPages++) {
    const { resources } = await iterator.fetchNext();
    found.push(...(resources ?? []));
    if (nPages === 0) await afterFirst();
  }
  return found;
}

/** The rows as the SDK merges them itself when it may not ask the server for the whole. */
export async function mergedRows(container, query, options) {
  // A client that has seen no split: in one that has, this SDK asks the old partitions for ever.
  const fresh = connect({ key }).database(container.database.id).container(container.id);
  return rows(fresh, query, { ...options, forceQueryPlan: true });
}

/** Looks at the rows of a query before, during and after a split of all partitions. */
export async function check(container, query, right, options = {}, ways = [rows, mergedRows]) {
  for (const way of ways) right(await way(container, query, options));
  right(await rows(container, query, options, () => splitAll(container)));
  for (const way of ways) right(await way(container, query, options));
}
