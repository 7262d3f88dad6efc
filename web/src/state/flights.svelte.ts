// Articles in flight: looks for a fresh article in every region until all of them have it. Asked for one article, a service that
// lacks it asks the account's write region; a list shows what the region itself has.
import { ApiError, call, explain } from '../lib/api';
import { hasLanded, launch, withSighting, type Flight, type Sighting } from '../lib/flight';
import type { Article, Page } from '../lib/types';
import { session } from './session.svelte';

/** Ask often at first, when arrival times are worth knowing exactly, then ever less. */
const PAUSES_MS: [untilMs: number, pauseMs: number][] = [
  [5000, 80],
  [30_000, 250],
  [600_000, 1000],
];
const N_KEPT = 20;

class Flights {
  all = $state.raw<ReadonlyMap<string, Flight>>(new Map());
  latest = $state<string | null>(null);
  private readonly began = new Map<string, number>();

  /** Starts to trace; the clock starts now. */
  begin(id: string, from: string): void {
    if (this.all.has(id)) return;
    const flight = launch(id, from, session.regionNames);
    this.began.set(id, performance.now());
    this.all = new Map([...this.all, [id, flight] as const].slice(-N_KEPT));
    this.latest = id;
    const author = remembered(() => authorOf(session.baseOf(from), id));
    for (const region of session.regions) void this.trace(id, author, region.name, session.baseOf(region.name));
  }

  elapsedMs(id: string): number {
    return performance.now() - (this.began.get(id) ?? performance.now());
  }

  private async trace(id: string, author: () => Promise<string>, region: string, base: string): Promise<void> {
    for (;;) {
      const askedMs = this.elapsedMs(id);
      const pauseMs = PAUSES_MS.find(([untilMs]) => askedMs < untilMs)?.[1];
      const flight = this.all.get(id);
      if (pauseMs === undefined || flight === undefined || hasLanded(flight)) return;
      const { seen, retryAfterMs } = await look(base, id, author);
      const current = this.all.get(id);
      if (current === undefined) return;
      this.all = new Map(this.all).set(id, withSighting(current, region, askedMs, this.elapsedMs(id), seen));
      if (seen === 'present') return;
      await new Promise((resolve) => setTimeout(resolve, Math.max(pauseMs, retryAfterMs)));
    }
  }
}

/** Asks until there is an answer, and then no more. */
function remembered<Value>(ask: () => Promise<Value>): () => Promise<Value> {
  let known: Promise<Value> | null = null;
  return () =>
    (known ??= ask().catch((problem: unknown) => {
      known = null;
      throw problem;
    }));
}

async function authorOf(base: string, id: string): Promise<string> {
  return (await call<Article>(base, `/v1/articles/${encodeURIComponent(id)}`)).body.author;
}

async function look(
  base: string,
  id: string,
  author: () => Promise<string>,
): Promise<{ seen: Sighting; retryAfterMs: number }> {
  try {
    const query = { author: await author(), pageSize: '100' };
    const page = await call<Page<Article>>(base, '/v1/articles', { query, timeoutMs: 3000 });
    const isThere = page.body.items.some((article) => article.id === id);
    return { seen: isThere ? 'present' : 'absent', retryAfterMs: 0 };
  } catch (problem) {
    const retryAfterMs = problem instanceof ApiError ? (problem.retryAfterMs ?? 0) : 0;
    return { seen: { problem: explain(problem) }, retryAfterMs };
  }
}

export const flights = new Flights();
