import { describe, expect, test } from 'vitest';
import { along, arc, contains, MAP_HEIGHT, MAP_WIDTH, project } from './geometry';
import { isLand, landDots } from './land';

describe('the projection', () => {
  test('has the meridian of Greenwich in the middle', () => {
    expect(project({ latitude: 0, longitude: 0 }).x).toBe(MAP_WIDTH / 2);
  });

  test.each([
    [180, -180],
    [190, -170],
    [-540, 180],
  ])('takes longitude %d for the same place as %d', (one, other) => {
    const [a, b] = [project({ latitude: 0, longitude: one }), project({ latitude: 0, longitude: other })];
    expect(a.x).toBeCloseTo(b.x);
  });

  test('keeps the poles on the map', () => {
    expect(project({ latitude: 90, longitude: 0 }).y).toBe(0);
    expect(project({ latitude: -90, longitude: 0 }).y).toBeCloseTo(MAP_HEIGHT, 0);
  });

  test('puts west to the left and north to the top', () => {
    const [westUs, asia] = [project({ latitude: 37, longitude: -122 }), project({ latitude: 1, longitude: 104 })];
    expect(westUs.x).toBeLessThan(asia.x);
    expect(westUs.y).toBeLessThan(asia.y);
  });
});

describe('an arc', () => {
  const [here, there] = [
    { x: 100, y: 100 },
    { x: 300, y: 100 },
  ];

  test('and the way back lie on different sides of the straight line', () => {
    expect(arc(here, there).mark.y).toBeLessThan(100);
    expect(arc(there, here).mark.y).toBeGreaterThan(100);
  });

  test('has its label outside of the lens that it forms with the way back', () => {
    expect(arc(here, there).label.y).toBeLessThan(arc(here, there).mark.y);
    expect(arc(there, here).label.y).toBeGreaterThan(arc(there, here).mark.y);
  });

  test('points along its direction of travel', () => {
    expect(Math.abs(arc(here, there).heading)).toBeLessThan(20);
    expect(Math.abs(arc(there, here).heading)).toBeGreaterThan(160);
  });

  test('leaves room for the nodes at both ends', () => {
    const [, x1, x2] = /^M([\d.]+) [\d.]+Q[\d.]+ [\d.]+ ([\d.]+)/.exec(arc(here, there, 10).path) ?? [];
    expect(Number(x1)).toBeGreaterThan(105);
    expect(Number(x2)).toBeLessThan(295);
  });

  test('has its label where no name hides it, if there is such a place', () => {
    const far = { x: 900, y: 100 };
    const usual = arc(here, far).label;
    const moved = arc(here, far, 0, [here, far, { x: usual.x + 40, y: usual.y - 20 }]).label;
    expect(usual.x + 40 - moved.x).toBeGreaterThanOrEqual(85);
    expect(arc(here, far, 0, [here, far, { x: usual.x, y: usual.y + 200 }]).label).toEqual(usual);
    expect(arc(here, there, 0, [arc(here, there).label]).label).toEqual(arc(here, there).label);
  });

  test('between two regions in one place is still a number', () => {
    expect(arc(here, here, 10).path).not.toContain('NaN');
  });
});

test('a curve starts at its start and ends at its end', () => {
  const points = [
    { x: 0, y: 0 },
    { x: 5, y: 9 },
    { x: 10, y: 0 },
  ] as const;
  expect(along(...points, 0)).toEqual(points[0]);
  expect(along(...points, 1)).toEqual(points[2]);
  expect(along(...points, 0.5)).toEqual({ x: 5, y: 4.5 });
});

test('a ring contains what is inside it, also across a dent', () => {
  const dented = [
    [0, 0],
    [10, 0],
    [10, 10],
    [5, 3],
    [0, 10],
  ] as const;
  expect(contains(dented, { longitude: 1, latitude: 2 })).toBe(true);
  expect(contains(dented, { longitude: 5, latitude: 8 })).toBe(false);
  expect(contains(dented, { longitude: 11, latitude: 2 })).toBe(false);
});

test.each([
  ['California', 38, -121, true],
  ['Texas', 31, -99, true],
  ['Brazil', -10, -52, true],
  ['Germany', 51, 10, true],
  ['Congo', 0, 22, true],
  ['India', 22, 78, true],
  ['China', 34, 108, true],
  ['Australia', -25, 134, true],
  ['the Atlantic', 30, -40, false],
  ['the Pacific', 0, -140, false],
  ['the Indian Ocean', -20, 80, false],
])('%s (%d, %d) is land: %s', (_, latitude, longitude, land) => expect(isLand(latitude, longitude)).toBe(land));

test('the map has enough dots to be read and few enough to be drawn', () => {
  const n_dots = landDots(2.25).split('M').length - 1;
  expect(n_dots).toBeGreaterThan(1500);
  expect(n_dots).toBeLessThan(5000);
});
