import { expect, test } from 'vitest';
import { describeSubscribed, formatFilter, parseFilter } from './filter';

test.each([
  ['author:ann', 'author', 'ann'],
  ['tag:a:b', 'tag', 'a:b'],
  ['sports', 'category', 'sports'],
] as const)('%j is about the %s %j', (filter, by, value) => {
  expect(parseFilter(filter)).toEqual({ by, value });
  expect(parseFilter(formatFilter(by, value))).toEqual({ by, value });
});

test.each([
  [{}, 'You follow tag:ski'],
  [{ backfilled: 0, missing: [] }, 'You follow tag:ski, with 0 earlier articles'],
  [{ backfilled: 1, missing: [] }, 'You follow tag:ski, with 1 earlier article'],
  [
    { backfilled: 2, missing: ['asia'] },
    'You follow tag:ski, with 2 earlier articles; those of asia could not be read',
  ],
])('a subscription that brought %j reads %j', (brought, expected) =>
  expect(describeSubscribed({ filter: 'tag:ski', since: 1, ...brought })).toBe(expected),
);
