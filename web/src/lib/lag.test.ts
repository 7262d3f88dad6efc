import { expect, test } from 'vitest';
import { axisTop, EMPTY_LAG, WINDOW_MS, withSample } from './lag';
import type { WorldAccount } from './types';

function account(lags: Record<string, number | null>): WorldAccount {
  const regions = Object.entries(lags).map(([name, lagMs]) => ({
    name,
    role: 'read' as const,
    state: 'online',
    lagMs,
    lagTransactions: 0,
    readsTotal: 0,
    writesTotal: 0,
  }));
  return { id: 'contentpubdatabase-usa', tag: 'usa', endpoint: '', regions };
}

const line = (history: typeof EMPTY_LAG, region: string) => history.lines.get('usa')?.get(region);

test('samples follow one another and unknown stays unknown', () => {
  let history = withSample(EMPTY_LAG, 1000, [account({ asia: 80 })]);
  history = withSample(history, 1500, [account({ asia: null })]);
  expect(history.times).toEqual([1000, 1500]);
  expect(line(history, 'asia')).toEqual([80, null]);
});

test('a minute is kept and no more', () => {
  let history = EMPTY_LAG;
  for (let now = 0; now <= 2 * WINDOW_MS; now += 1000) history = withSample(history, now, [account({ asia: now })]);
  expect(history.times[0]).toBe(WINDOW_MS);
  expect(history.times).toHaveLength(61);
  expect(line(history, 'asia')).toEqual(history.times);
});

test('a time without samples is a gap', () => {
  let history = withSample(EMPTY_LAG, 0, [account({ asia: 80 })]);
  history = withSample(history, 20_000, [account({ asia: 90 })]);
  expect(history.times).toEqual([0, 1, 20_000]);
  expect(line(history, 'asia')).toEqual([80, null, 90]);
});

test('a region that joins late has no past, and one that leaves no line', () => {
  let history = withSample(EMPTY_LAG, 0, [account({ asia: 1, europe: 2 })]);
  history = withSample(history, 500, [account({ asia: 3, africa: 4 })]);
  expect(line(history, 'africa')).toEqual([null, 4]);
  expect(line(history, 'europe')).toBeUndefined();
});

test.each([
  [0, 100],
  [100, 100],
  [101, 200],
  [450, 500],
  [60_000, 100_000],
])('a lag of %d ms is drawn on an axis up to %d ms', (lag, top) =>
  expect(axisTop(withSample(EMPTY_LAG, 0, [account({ asia: lag })]))).toBe(top),
);
