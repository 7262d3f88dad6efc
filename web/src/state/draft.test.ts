import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ApiError } from '../lib/api';
import type { Publishing } from '../lib/publishing';
import type { Article } from '../lib/types';

const stored = new Map<string, string>();

beforeEach(() => {
  stored.clear();
  vi.resetModules();
  vi.stubGlobal('localStorage', {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => void stored.set(name, value),
    removeItem: (name: string) => void stored.delete(name),
  });
});

afterEach(() => vi.unstubAllGlobals());

/** As after the page was opened. */
async function opened() {
  const [{ draftState }, { session }] = await Promise.all([import('./draft.svelte'), import('./session.svelte')]);
  return { draftState, session };
}

const SNOW = { title: 'Snow', body: '', category: 'sports', tags: [] };

test('what one user writes is not shown to the next one, and is there again for the first', async () => {
  const { draftState, session } = await opened();
  session.user = 'ann';
  draftState.write(SNOW);
  const { key } = draftState.draft;
  session.user = 'bob';
  expect(draftState.draft.title).toBe('');
  expect(draftState.draft.key).not.toBe(key);
  session.user = 'ann';
  expect(draftState.draft).toMatchObject({ title: 'Snow', key });
});

test('every user has a draft of their own after the page is opened again', async () => {
  const before = await opened();
  before.session.user = 'ann';
  before.draftState.write(SNOW);
  vi.resetModules();
  const { draftState, session } = await opened();
  session.user = 'bob';
  expect(draftState.draft.title).toBe('');
  session.user = 'ann';
  expect(draftState.draft.title).toBe('Snow');
});

test('an attempt is concluded for whoever made it, though somebody else is signed in by then', async () => {
  const { draftState, session } = await opened();
  session.user = 'ann';
  draftState.write(SNOW);
  const { key } = draftState.draft;
  let refuse = (_problem: unknown) => {};
  const publish = () => new Promise<Article>((_, reject) => (refuse = reject));
  const attempt = draftState.publish({ publish } as unknown as Publishing, 'West US');
  session.user = 'bob';
  refuse(new ApiError(503, 'unavailable', 'no answer', 'r'));
  await expect(attempt).rejects.toThrow();
  expect(draftState.draft).toMatchObject({ title: '', openIn: null });
  session.user = 'ann';
  expect(draftState.draft).toMatchObject({ title: 'Snow', key, openIn: 'West US' });
});
