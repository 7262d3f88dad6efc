// A minute of replication lag: one line per account and region, all on one time axis.
import type { WorldAccount } from './types';

export const WINDOW_MS = 60_000;

export interface LagHistory {
  /** Milliseconds since 1970, rising. */
  times: number[];
  /** Account tag, then region name, then one value per time; null where it was not known. */
  lines: ReadonlyMap<string, ReadonlyMap<string, (number | null)[]>>;
}

export const EMPTY_LAG: LagHistory = { times: [], lines: new Map() };

/** A pause longer than this is shown as one, not bridged by a line. */
const GAP_MS = 3000;

/** Appends one sample and forgets what is older than the window. Regions may come and go. */
export function withSample(history: LagHistory, now: number, accounts: WorldAccount[]): LagHistory {
  const last = history.times.at(-1);
  const known = last !== undefined && now - last > GAP_MS ? append(history, last + 1, accounts, () => null) : history;
  return append(known, now, accounts, (lagMs) => lagMs);
}

type Shown = (lagMs: number | null) => number | null;

function append(history: LagHistory, now: number, accounts: WorldAccount[], shown: Shown): LagHistory {
  const drop = history.times.filter((time) => time < now - WINDOW_MS).length;
  const times = [...history.times.slice(drop), now];
  const lines = new Map<string, Map<string, (number | null)[]>>();
  for (const account of accounts) {
    const before = history.lines.get(account.tag);
    const regions = new Map<string, (number | null)[]>();
    for (const region of account.regions) {
      const past = before?.get(region.name)?.slice(drop) ?? new Array<null>(times.length - 1).fill(null);
      regions.set(region.name, [...past, shown(region.lagMs)]);
    }
    lines.set(account.tag, regions);
  }
  return { times, lines };
}

/** A round upper end for the axis, so that the scale moves in few steps instead of with every sample. */
export function axisTop(history: LagHistory): number {
  let largest = 0;
  for (const regions of history.lines.values())
    for (const values of regions.values()) for (const value of values) largest = Math.max(largest, value ?? 0);
  for (let top = 100; ; top *= 10) for (const step of [1, 2, 5]) if (largest <= top * step) return top * step;
}
