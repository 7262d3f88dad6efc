// An account of three regions: who answers, and what a change of the write region shows. One test after the other.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ADDED, LAST, NEXT, WRITER, answered, answers, forget, freshContainer, manage, only, prefer, regions } from "./fleet.js";
import { seenBy, waitLevel, whileRemoved, withLinks } from "./fleet.js";
import { range, waitUntil } from "./support.js";

const PATIENCE_SECONDS = 30;

const fill = async (container, names) => {
  for (const name of names) await container.items.create({ id: name, pk: `key ${name}` });
};

async function idsSeenIn(region, container) {
  const { resources } = await seenBy(prefer(region), container).items.query("SELECT VALUE c.id FROM c").fetchAll();
  return resources.sort();
}

async function readBack(container, name) {
  const { statusCode } = await container.item(name, `key ${name}`).read();
  assert.equal(statusCode, 200, `reading ${name}`);
}

test("region-reads-in-preferred", async (t) => {
  const container = await freshContainer(t);
  const names = range(0, 10).map(String);
  await fill(container, names);
  await waitLevel();
  for (const region of regions) {
    const here = seenBy(prefer(region), container);
    await answers("read_item", only(region, names.length), async () => {
      for (const name of names) await readBack(here, name);
    });
  }
});

test("region-writes-in-write-region", async (t) => {
  const container = await freshContainer(t);
  for (const region of regions) {
    const names = range(0, 5).map((number) => `${region} ${number}`);
    await answers("create_item", only(WRITER, 5), () => fill(seenBy(prefer(region), container), names));
  }
});

test("region-session", async (t) => {
  const here = seenBy(prefer(LAST), await freshContainer(t));
  await here.items.create({ id: "1", pk: "a", n: 0 });
  await waitLevel();
  await withLinks([LAST], { latencyMs: 100 }, async () => {
    for (const n of range(1, 4)) {
      await here.item("1", "a").replace({ id: "1", pk: "a", n });
      await answers("read_item", only(LAST, 1), async () => {
        assert.equal((await here.item("1", "a").read()).resource.n, n);
      });
    }
  });
});

test("region-session-cut-off", { skip: "the SDK asks the same region again, without the session token" });

test("region-down", async (t) => {
  const container = await freshContainer(t);
  await fill(container, ["1"]);
  await waitLevel();
  const here = seenBy(prefer(LAST), container);
  await answers("read_item", only(LAST, 1), () => readBack(here, "1"));
  await manage("POST", `regions/${LAST}/stop`, { mode: "unavailable" });
  try {
    await answers("read_item", { [WRITER]: 5, [NEXT]: 0 }, async () => {
      for (let n = 0; n < 5; n++) await readBack(here, "1");
    });
  } finally {
    await manage("POST", `regions/${LAST}/start`);
  }
});

test("region-added-and-removed", async (t) => {
  const container = await freshContainer(t);
  await fill(container, ["1"]);
  await manage("POST", "regions", { region: ADDED });
  t.after(() => forget(ADDED));
  const here = seenBy(prefer(ADDED), container);
  const readFive = async () => {
    for (let n = 0; n < 5; n++) await readBack(here, "1");
  };
  await answers("read_item", only(ADDED, 0), readFive);
  await answers("read_item", only(WRITER, 10), async () => {
    await whileRemoved(ADDED, readFive);
    await readFive();
  });
});

test("region-found-by-name", { skip: "the SDK tries the account's own name for two minutes first" });

/** Creates items, and reads each back, until stopped; notes what was acknowledged and what went wrong. */
class Load {
  acknowledged = [];
  errors = [];
  stopped = false;

  constructor(container) {
    this.container = container;
    this.workers = range(0, 4).map((worker) => this.work(worker));
  }

  async work(worker) {
    for (let number = 0; !this.stopped; number++) {
      const name = `${worker}-${number}`;
      try {
        await fill(this.container, [name]);
        this.acknowledged.push(name);
        await readBack(this.container, name);
      } catch (error) {
        this.errors.push(`${name}: ${error.code} ${error.message}`);
      }
    }
  }

  async stop() {
    this.stopped = true;
    await Promise.all(this.workers);
  }
}

test("region-planned-failover", async (t) => {
  const container = await freshContainer(t);
  const load = new Load(seenBy(prefer(LAST), container));
  try {
    await waitUntil(() => load.acknowledged.length >= 40, PATIENCE_SECONDS);
    for (const writer of [NEXT, WRITER]) {
      const before = await answered("create_item", writer);
      await manage("POST", "failover", { region: writer });
      await waitUntil(async () => (await answered("create_item", writer)) >= before + 40, PATIENCE_SECONDS);
    }
  } finally {
    await load.stop();
  }
  assert.deepEqual(load.errors, []);
  await waitLevel();
  for (const region of regions) assert.deepEqual(await idsSeenIn(region, container), load.acknowledged.sort());
});

/** Tries again as an application would after a failover it was not spared. */
async function insist(call) {
  let last;
  await waitUntil(() => call().then(() => true, (error) => ((last = error), false)), PATIENCE_SECONDS).catch(() => {
    throw last;
  });
}

test("region-forced-failover", async (t) => {
  const container = await freshContainer(t);
  const [kept, lost, later] = ["kept", "lost", "later"].map((kind) => range(0, 10).map((number) => `${kind} ${number}`));
  const here = seenBy(prefer(LAST), container);
  await fill(here, kept);
  await waitLevel();
  await withLinks([NEXT, LAST], { cut: true }, async () => {
    await fill(here, lost);
    const { lostTransactions } = await manage("POST", `regions/${WRITER}/offline`);
    assert.equal(lostTransactions, lost.length);
  });
  for (const name of later) await insist(() => here.items.upsert({ id: name, pk: `key ${name}` }));
  await waitLevel();
  const expected = [...kept, ...later].sort();
  for (const region of [NEXT, LAST]) assert.deepEqual(await idsSeenIn(region, container), expected);
  await manage("POST", `regions/${WRITER}/online`);
  await manage("POST", "failover", { region: WRITER });
  assert.deepEqual(await idsSeenIn(WRITER, container), expected);
});

test("region-conflict-feed", async (t) => {
  const container = await freshContainer(t);
  const lost = range(0, 3).map((number) => `lost ${number}`);
  const here = seenBy(prefer(NEXT), container);
  await withLinks([NEXT, LAST], { cut: true }, async () => {
    await fill(here, lost);
    await manage("POST", `regions/${WRITER}/offline`);
  });
  await manage("POST", `regions/${WRITER}/online`);
  const { resources: conflicts } = await here.conflicts.readAll().fetchAll();
  const items = conflicts.map((conflict) => JSON.parse(conflict.content));
  assert.deepEqual(items.map((item) => item.id).sort(), lost);
  assert.ok(conflicts.every((conflict) => conflict.operationType === "create"));
  assert.deepEqual(await idsSeenIn(NEXT, container), []);
  // Reading one by its id asks for a path that does not exist, with the signature of a user: the SDK cannot.
  for (const [index, conflict] of conflicts.entries()) await here.conflict(conflict.id, items[index].pk).delete();
  assert.deepEqual((await here.conflicts.readAll().fetchAll()).resources, []);
  await manage("POST", "failover", { region: WRITER });
});
