// Articles in flight: asks every region's service for a fresh article until all of them have it.
import { ApiError, call, explain } from '../lib/api';
import { hasLanded, launch, withSighting, type Flight, type Sighting } from '../lib/flight';
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
    for (const region of session.regions) void this.trace(id, region.name, session.baseOf(region.name));
  }

  elapsedMs(id: string): number {
    return performance.now() - (this.began.get(id) ?? performance.now());
  }

  private async trace(id: string, region: string, base: string): Promise<void> {
    for (;;) {
      const askedMs = this.elapsedMs(id);
      const pauseMs = PAUSES_MS.find(([untilMs]) => askedMs < untilMs)?.[1];
      const flight = this.all.get(id);
      if (pauseMs === undefined || flight === undefined || hasLanded(flight)) return;
      const { seen, retryAfterMs } = await look(base, id);
      const current = this.all.get(id);
      if (current === undefined) return;
      this.all = new Map(this.all).set(id, withSighting(current, region, askedMs, this.elapsedMs(id), seen));
      if (seen === 'present') return;
      await new Promise((resolve) => setTimeout(resolve, Math.max(pauseMs, retryAfterMs)));
    }
  }
}

async function look(base: string, id: string): Promise<{ seen: Sighting; retryAfterMs: number }> {
  try {
    await call(base, `/v1/articles/${encodeURIComponent(id)}`, { timeoutMs: 3000 });
    return { seen: 'present', retryAfterMs: 0 };
  } catch (problem) {
    if (problem instanceof ApiError && problem.status === 404) return { seen: 'absent', retryAfterMs: 0 };
    const retryAfterMs = problem instanceof ApiError ? (problem.retryAfterMs ?? 0) : 0;
    return { seen: { problem: explain(problem) }, retryAfterMs };
  }
}

export const flights = new Flights();
