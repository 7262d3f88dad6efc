import { expect, test } from 'vitest';
import { formatAge, formatCount, formatMs } from './format';

test.each([
  [null, '–'],
  [undefined, '–'],
  [0, '0 ms'],
  [83.4, '83 ms'],
  [1234, '1.23 s'],
  [12_345, '12.3 s'],
  [61_000, '1 min 1 s'],
  [119_900, '2 min 0 s'],
])('%d ms reads %j', (ms, text) => expect(formatMs(ms)).toBe(text));

test.each([
  [null, '–'],
  [0, '0'],
  [12_345, '12,345'],
])('a count of %d reads %j', (count, text) => expect(formatCount(count)).toBe(text));

test.each([
  [0, 'just now'],
  [-5000, 'just now'],
  [30_000, '30 s ago'],
  [150_000, '2 min ago'],
  [7_200_000, '2 h ago'],
  [200_000_000, '2 d ago'],
])('%d ms after it happened it is %j', (age, text) => expect(formatAge(1e12, 1e12 + age)).toBe(text));
