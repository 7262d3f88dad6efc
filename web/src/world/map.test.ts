import { expect, test } from 'vitest';
import type { Link, World } from '../lib/types';
import { flightArcs, flightNodes, worldArcs, worldNodes } from './map';

function world(n_regions: number): World {
  const names = Array.from({ length: n_regions }, (_, idx) => `region-${idx}`);
  const link = { latencyMs: 70, jitterMs: 0, loss: 0, cut: false, paused: false, bytesPerSecond: null };
  const known = { state: 'online', lagMs: 0, lagTransactions: 0, readsTotal: 0, writesTotal: 0 };
  return {
    regions: names.map((name) => ({ name, latitude: 0, longitude: 0, url: '', state: 'running' })),
    accounts: names.map((home) => ({
      id: home,
      tag: home,
      endpoint: '',
      regions: names.map((name) => ({ ...known, name, role: name === home ? 'write' : 'read' })),
    })),
    links: names.flatMap((from) => names.filter((to) => to !== from).map((to): Link => ({ ...link, from, to }))),
    fanout: [],
  };
}

const same = (account: string) => account;

test('a region shows every account and where it is written', () => {
  expect(worldNodes(world(3), same)[1]?.pips).toEqual([
    { home: 'region-0', writes: false },
    { home: 'region-1', writes: true },
    { home: 'region-2', writes: false },
  ]);
});

test('among many accounts only those that are written in a region are marked there', () => {
  expect(worldNodes(world(8), same)[1]?.pips).toEqual([{ home: 'region-1', writes: true }]);
});

test('few links carry their latency, many only when one asks for it or when they are broken', () => {
  expect(worldArcs(world(3).links, null).map(({ text }) => text)).toEqual(new Array(6).fill('70 ms'));
  const [first, second, ...rest] = world(8).links as [Link, Link, ...Link[]];
  const arcs = worldArcs([first, { ...second, cut: true }, ...rest], `${first.from} → ${first.to}`);
  expect(arcs[0]).toMatchObject({ kind: 'open', strong: true, text: '70 ms' });
  expect(arcs[1]).toMatchObject({ kind: 'cut', text: 'cut' });
  expect(arcs[2]).toMatchObject({ kind: 'idle', text: '' });
});

test('a cut link is cut, also when it is paused', () => {
  const [link] = world(2).links as [Link];
  expect(worldArcs([{ ...link, cut: true, paused: true }], null)[0]).toMatchObject({ kind: 'cut', text: 'cut' });
});

test('a flight leaves from where its account is written and ends where it has arrived', () => {
  const flight = {
    id: 'a',
    from: 'region-0',
    legs: [
      { region: 'region-0', state: 'arrived', absentMs: 0, presentMs: 80 },
      { region: 'region-1', state: 'arrived', absentMs: 0, presentMs: 4 },
      { region: 'region-2', state: 'waiting', absentMs: 90, problem: null },
    ],
  } as const;
  const arcs = flightArcs({ ...flight, legs: [...flight.legs] }, 'region-1');
  expect(arcs.map(({ from, to, kind }) => `${from} ${to} ${kind}`)).toEqual([
    'region-1 region-0 done',
    'region-1 region-2 moving',
  ]);
  const nodes = flightNodes(world(3), { ...flight, legs: [...flight.legs] });
  expect(nodes.map(({ note }) => note)).toEqual(['80 ms', '4 ms', 'on its way']);
});
