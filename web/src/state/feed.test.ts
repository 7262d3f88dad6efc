import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ApiError } from '../lib/api';
import type { Publishing } from '../lib/publishing';
import type { Notification, Page } from '../lib/types';
import { liveFeed } from './feed.svelte';

/** Streams that were opened, newest last; tests speak for the service. */
let streams: FakeStream[] = [];

class FakeStream extends EventTarget {
  static readonly CLOSED = 2;
  readyState = 1;
  constructor(readonly url: string) {
    super();
    streams.push(this);
  }
  say(type: string, data: unknown = {}): void {
    this.dispatchEvent(new MessageEvent(type, { data: JSON.stringify(data) }));
  }
  close(): void {
    this.readyState = FakeStream.CLOSED;
  }
}

const page = Object.assign(new EventTarget(), { hidden: false });
let answers: (Page<Notification> | Error)[] = [];
let n_reads = 0;
/** Older pages that were asked for, to be answered by tests. */
let olderPages: ((page: Page<Notification>) => void)[] = [];
let unfollow = () => {};

const service = {
  streamAddress: async () => '/stream',
  notifications: async (continuation?: string) => {
    if (continuation !== undefined) return new Promise((resolve) => olderPages.push(resolve));
    n_reads++;
    const answer = answers.length > 1 ? answers.shift()! : answers[0]!;
    if (answer instanceof Error) throw answer;
    return answer;
  },
} as unknown as Publishing;

const EMPTY: Page<Notification> = { items: [], missing: [], accounts: [] };
const note = (id: string): Notification => ({ id, publishedAt: 1, readAt: null, account: 'usa' }) as Notification;
const settle = () => vi.advanceTimersByTimeAsync(0);

async function followed(...first: (Page<Notification> | Error)[]): Promise<FakeStream> {
  answers = first;
  unfollow = liveFeed.follow(service);
  await settle();
  return streams.at(-1)!;
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('EventSource', FakeStream);
  vi.stubGlobal('document', page);
  [streams, n_reads, page.hidden, olderPages] = [[], 0, false, []];
});

afterEach(() => {
  unfollow();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test.each(['open', 'missed'])('the first page is read again after %s', async (event) => {
  const stream = await followed(EMPTY);
  const before = n_reads;
  stream.say(event);
  await settle();
  expect(n_reads).toBe(before + 1);
});

test('what the stream tells is shown without a read', async () => {
  const stream = await followed(EMPTY);
  const before = n_reads;
  stream.say('notification', note('a'));
  expect(liveFeed.feed.items.map(({ id }) => id)).toEqual(['a']);
  stream.say('withdrawn', { id: 'a' });
  expect(liveFeed.feed.items).toEqual([]);
  expect(n_reads).toBe(before);
});

test('wishes that come while a page is read are granted by one more read', async () => {
  const stream = await followed(EMPTY);
  const before = n_reads;
  for (let n = 0; n < 5; n++) stream.say('missed');
  await settle();
  expect(n_reads).toBe(before + 2);
});

test('a missing account is asked for again, ever less often, until it is there', async () => {
  const late = { ...EMPTY, missing: ['asia'], continuation: 'later' };
  await followed(late, late, EMPTY);
  expect(liveFeed.feed.missing).toEqual(['asia']);
  await vi.advanceTimersByTimeAsync(1999);
  expect(n_reads).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(n_reads).toBe(2);
  await vi.advanceTimersByTimeAsync(3000);
  expect(liveFeed.feed.missing).toEqual([]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(n_reads).toBe(3);
});

test('an older page goes under the first page that it was asked for', async () => {
  await followed({ ...EMPTY, items: [note('b')], continuation: 'after b' });
  const asked = liveFeed.more();
  expect(liveFeed.loading).toBe(true);
  olderPages[0]!({ ...EMPTY, items: [note('c')] });
  await asked;
  expect(liveFeed.feed.items.map(({ id }) => id)).toEqual(['b', 'c']);
  expect(liveFeed.loading).toBe(false);
});

test('an older page is dropped when the first page was read again and goes on elsewhere', async () => {
  const before = { ...EMPTY, items: [note('b')], continuation: 'after b' };
  const stream = await followed(before, { ...EMPTY, items: [note('y')], continuation: 'after y' });
  const asked = liveFeed.more();
  stream.say('missed');
  await settle();
  olderPages[0]!({ ...EMPTY, items: [note('c')] });
  await asked;
  expect(liveFeed.feed).toMatchObject({ items: [{ id: 'y' }], continuation: 'after y' });
  expect(liveFeed.loading).toBe(false);
});

test('another region can be paged through while an older page of the one before is on its way', async () => {
  await followed({ ...EMPTY, items: [note('b')], continuation: 'after b' });
  const asked = liveFeed.more();
  unfollow();
  await followed({ ...EMPTY, items: [note('d')], continuation: 'after d' });
  expect(liveFeed.loading).toBe(false);
  const askedHere = liveFeed.more();
  olderPages[0]!({ ...EMPTY, items: [note('c')] });
  await asked;
  expect(liveFeed.loading).toBe(true);
  olderPages[1]!({ ...EMPTY, items: [note('e')] });
  await askedHere;
  expect(liveFeed.feed.items.map(({ id }) => id)).toEqual(['d', 'e']);
});

test('a stream that is refused is opened again after a while', async () => {
  const stream = await followed(EMPTY);
  stream.close();
  stream.say('error');
  expect(liveFeed.stream).toBe('lost');
  expect(streams).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1000);
  expect(streams).toHaveLength(2);
});

test('a read that fails is explained and repeated', async () => {
  await followed(new ApiError(503, 'unavailable', 'no account answers', 'r'), EMPTY);
  expect(liveFeed.problem).toBe('no account answers');
  await vi.advanceTimersByTimeAsync(1000);
  expect(liveFeed.problem).toBeNull();
});

test('a page that nobody sees gives its stream back, and takes it again when it is looked at', async () => {
  const stream = await followed(EMPTY);
  page.hidden = true;
  page.dispatchEvent(new Event('visibilitychange'));
  await vi.advanceTimersByTimeAsync(30_000);
  expect(stream.readyState).toBe(FakeStream.CLOSED);
  page.hidden = false;
  page.dispatchEvent(new Event('visibilitychange'));
  await settle();
  expect(streams).toHaveLength(2);
});

test('a short look elsewhere keeps the stream', async () => {
  const stream = await followed(EMPTY);
  for (const hidden of [true, false]) {
    page.hidden = hidden;
    page.dispatchEvent(new Event('visibilitychange'));
  }
  await vi.advanceTimersByTimeAsync(60_000);
  expect(stream.readyState).toBe(1);
  expect(streams).toHaveLength(1);
});

test('after the end nothing is read and no stream is open', async () => {
  const stream = await followed({ ...EMPTY, missing: ['asia'], continuation: 'later' });
  unfollow();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(n_reads).toBe(1);
  expect(stream.readyState).toBe(FakeStream.CLOSED);
});
