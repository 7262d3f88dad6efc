import { expect, test } from 'vitest';
import type { Article } from '../lib/types';
import { latest, remember } from './recent';

const article = (id: string, revision: number) => ({ id, revision }) as Article;

test('a replica that is behind does not undo what the user has changed', () => {
  remember(article('a', 2));
  expect(latest(article('a', 1)).revision).toBe(2);
  expect(latest(article('a', 3)).revision).toBe(3);
  expect(latest(article('b', 1)).revision).toBe(1);
});

test('only the last changes are remembered', () => {
  remember(article('first', 9));
  for (let n = 0; n < 20; n++) remember(article(`other-${n}`, 1));
  expect(latest(article('first', 1)).revision).toBe(1);
});
