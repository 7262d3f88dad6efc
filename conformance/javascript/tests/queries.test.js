// Queries over eight partitions, all of which split between two pages.

import assert from "node:assert/strict";
import { test } from "node:test";

import { N_ITEMS, check, freshCatalogue, idOfRank, items, rows } from "./catalogue.js";
import { range, splitAll } from "./support.js";

const byText = (one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1);
const equal = (expected) => (found) => assert.deepEqual(found, expected);
const equalInAnyOrder = (expected) => (found) =>
  assert.deepEqual(found.toSorted(byText), expected.toSorted(byText));

const numbers = range(0, N_ITEMS);

/** Sorted by tie, and every item once. */
function completeByTie(found) {
  assert.deepEqual(found.map((row) => row.tie), items.map((item) => item.tie).sort());
  equalInAnyOrder(numbers)(found.map((row) => row.n));
}

test("query-scan", async (t) => {
  const catalogue = await freshCatalogue(t);
  await check(catalogue, "SELECT VALUE c.n FROM c", equalInAnyOrder(numbers));
});

test("query-order-by", async (t) => {
  const catalogue = await freshCatalogue(t);
  await check(catalogue, "SELECT VALUE c.n FROM c ORDER BY c.n", equal(numbers));
  await check(catalogue, "SELECT VALUE c.n FROM c WHERE c.n < 50 ORDER BY c.n DESC", equal(range(0, 50).reverse()));
});

test("query-order-by-ties", async (t) => {
  const catalogue = await freshCatalogue(t);
  await check(catalogue, "SELECT c.tie, c.n FROM c ORDER BY c.tie", completeByTie, { maxItemCount: 7 });
});

test("query-order-by-two", async (t) => {
  const catalogue = await freshCatalogue(t);
  const expected = items.map(({ tie, n }) => [tie, n]).sort((one, other) => one[0] - other[0] || other[1] - one[1]);
  await check(catalogue, "SELECT VALUE [c.tie, c.n] FROM c ORDER BY c.tie ASC, c.n DESC", equal(expected));
});

const kinds = ["undefined", "null", "boolean", "number", "string"];
const kindOf = (value) => kinds.indexOf(value === null ? "null" : typeof value);

function sortedByType(found) {
  equalInAnyOrder(numbers)(found.map((row) => row.n));
  const values = found.map((row) => row.mixed);
  const expected = items.map((item) => item.mixed);
  expected.sort((one, other) => kindOf(one) - kindOf(other) || (one < other ? -1 : one > other ? 1 : 0));
  // Array.sort leaves undefined values for the end.
  const nMissing = expected.filter((value) => value === undefined).length;
  assert.deepEqual(values, [...expected.slice(-nMissing), ...expected.slice(0, -nMissing)]);
}

test("query-order-by-types", async (t) => {
  const catalogue = await freshCatalogue(t);
  // Merging by itself, this SDK compares no nulls.
  await check(catalogue, "SELECT c.n, c.mixed FROM c ORDER BY c.mixed", sortedByType, {}, [rows]);
});

test("query-top", async (t) => {
  const catalogue = await freshCatalogue(t);
  await check(catalogue, "SELECT TOP 25 VALUE c.n FROM c ORDER BY c.n DESC", equal(range(95, 120).reverse()));
});

test("query-offset-limit", async (t) => {
  const catalogue = await freshCatalogue(t);
  await check(catalogue, "SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 15 LIMIT 30", equal(range(15, 45)));
  await check(catalogue, "SELECT VALUE c.n FROM c OFFSET 5 LIMIT 50", (found) => {
    assert.equal(found.length, 50);
    assert.equal(new Set(found).size, 50);
  });
});

test("query-distinct", async (t) => {
  const catalogue = await freshCatalogue(t);
  const families = range(0, 5).map((number) => `family ${number}`);
  const pairs = range(0, 4).flatMap((tie) => families.map((family) => ({ tie, family })));
  await check(catalogue, "SELECT DISTINCT c.tie, c.family FROM c", equalInAnyOrder(pairs), { maxItemCount: 6 });
  await check(catalogue, "SELECT DISTINCT VALUE c.family FROM c ORDER BY c.family", equal(families), { maxItemCount: 2 });
});

test("query-aggregates", async (t) => {
  const catalogue = await freshCatalogue(t);
  const aggregates = { "COUNT(1)": 120, "SUM(c.n)": 7140, "AVG(c.n)": 59.5, "MIN(c.n)": 0, "MAX(c.n)": 119 };
  for (const phase of ["before", "after"]) {
    for (const [aggregate, expected] of Object.entries(aggregates)) {
      assert.deepEqual(await rows(catalogue, `SELECT VALUE ${aggregate} FROM c`), [expected], phase);
    }
    const both = await rows(catalogue, "SELECT COUNT(1) AS total, MAX(c.n) AS most FROM c WHERE c.n < 50");
    assert.deepEqual(both, [{ total: 50, most: 49 }], phase);
    if (phase === "before") await splitAll(catalogue);
  }
});

function summary(family) {
  const members = items.filter((item) => item.family === family).map((item) => item.n);
  const total = members.reduce((sum, n) => sum + n);
  return { family, size: 24, total, mean: total / 24, least: Math.min(...members), most: Math.max(...members) };
}

test("query-group-by", async (t) => {
  const catalogue = await freshCatalogue(t);
  const query =
    "SELECT c.family, COUNT(1) AS size, SUM(c.n) AS total, AVG(c.n) AS mean, MIN(c.n) AS least, MAX(c.n) AS most " +
    "FROM c GROUP BY c.family";
  const expected = range(0, 5).map((number) => summary(`family ${number}`));
  await check(catalogue, query, equalInAnyOrder(expected), { maxItemCount: 2 });
});

const ranked = (...ranks) => equal(ranks.map((rank) => ({ id: idOfRank(rank) })));

test("query-vector", async (t) => {
  const catalogue = await freshCatalogue(t);
  const query = "SELECT TOP 10 c.id FROM c ORDER BY VectorDistance(c.vector, [2000, 1])";
  await check(catalogue, query, ranked(3, 6, 9, 1, 4, 7, 10, 2, 5, 8), { maxItemCount: 4 });
});

test("query-full-text", async (t) => {
  const catalogue = await freshCatalogue(t);
  const query = "SELECT TOP 10 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'comet')";
  await check(catalogue, query, ranked(10, 9, 8, 7, 6, 5, 4, 3, 2, 1), { maxItemCount: 4 });
});

test("query-hybrid", async (t) => {
  const catalogue = await freshCatalogue(t);
  const query =
    "SELECT TOP 10 c.id FROM c " +
    "ORDER BY RANK RRF(FullTextScore(c.text, 'comet'), VectorDistance(c.vector, [2000, 1]))";
  await check(catalogue, query, ranked(9, 6, 10, 3, 7, 4, 8, 1, 5, 2), { maxItemCount: 4 });
});

async function resumedAfterSplit(catalogue, query) {
  const { resources, continuationToken } = await catalogue.items.query(query, { maxItemCount: 25 }).fetchNext();
  assert.equal(resources.length, 25);
  await splitAll(catalogue);
  return [...resources, ...(await rows(catalogue, query, { maxItemCount: 25, continuationToken }))];
}

test("query-resume-after-split", async (t) => {
  const catalogue = await freshCatalogue(t);
  equal(numbers)(await resumedAfterSplit(catalogue, "SELECT VALUE c.n FROM c ORDER BY c.n"));
});

test("query-resume-ties-after-split", async (t) => {
  const catalogue = await freshCatalogue(t);
  completeByTie(await resumedAfterSplit(catalogue, "SELECT c.tie, c.n FROM c ORDER BY c.tie"));
});
