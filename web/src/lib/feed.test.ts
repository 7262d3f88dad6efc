import { describe, expect, test } from 'vitest';
import {
  beginRead,
  countUnread,
  EMPTY_FEED,
  withFirstPage,
  withNextPage,
  withNotification,
  withRead,
  withWithdrawal,
  type Feed,
} from './feed';
import type { Notification, Page } from './types';

function note(id: string, publishedAt: number, account = 'usa'): Notification {
  return {
    id,
    account,
    articleId: `usa.${id}`,
    title: id,
    author: 'ann',
    category: 'sports',
    filter: 'author:ann',
    matchedFilters: ['author:ann'],
    publishedAt,
    createdAt: publishedAt + 100,
    readAt: null,
  };
}

function page(items: Notification[], continuation?: string, missing: string[] = []): Page<Notification> {
  const known = { items, missing, accounts: [] };
  return continuation === undefined ? known : { ...known, continuation };
}

function ids(feed: Feed): string {
  return feed.items.map((item) => item.id).join(' ');
}

describe('events of the stream', () => {
  test('a new notification stands on top', () => {
    const feed = withNotification(withFirstPage(EMPTY_FEED, page([note('a', 1)])), note('b', 2));
    expect(ids(feed)).toBe('b a');
  });

  test('a late notification about an older article takes its place by the time of publication', () => {
    const feed = withNotification(withFirstPage(EMPTY_FEED, page([note('c', 3), note('a', 1)])), note('b', 2));
    expect(ids(feed)).toBe('c b a');
  });

  test('the same notification twice is one, in its latest form', () => {
    const read = { ...note('a', 1), readAt: 9 };
    const feed = withNotification(withNotification(EMPTY_FEED, note('a', 1)), read);
    expect(feed.items).toEqual([read]);
  });

  test('a copy of what was read already does not make it unread', () => {
    const read = withRead(withNotification(EMPTY_FEED, note('a', 1)), 'a', 7);
    expect(withNotification(read, note('a', 1, 'asia')).items).toEqual([{ ...note('a', 1, 'asia'), readAt: 7 }]);
  });

  test('equal times are ordered by id, whatever came first', () => {
    const one = withNotification(withNotification(EMPTY_FEED, note('a', 1)), note('b', 1));
    const other = withNotification(withNotification(EMPTY_FEED, note('b', 1)), note('a', 1));
    // As the service orders them.
    expect([ids(one), ids(other)]).toEqual(['a b', 'a b']);
  });

  test('a withdrawn notification goes away', () => {
    expect(ids(withWithdrawal(withNotification(EMPTY_FEED, note('a', 1)), 'a'))).toBe('');
  });
});

describe('reading the first page again', () => {
  test('brings what the stream has missed', () => {
    const before = withFirstPage(EMPTY_FEED, page([note('a', 1)]));
    expect(ids(withFirstPage(before, page([note('b', 2), note('a', 1)])))).toBe('b a');
  });

  test('does not make unread what was read, when the replica has not heard of it', () => {
    const before = withRead(withFirstPage(EMPTY_FEED, page([note('a', 1)])), 'a', 7);
    expect(withFirstPage(before, page([note('a', 1)])).items[0]?.readAt).toBe(7);
  });

  test('drops what is no longer listed', () => {
    const before = withFirstPage(EMPTY_FEED, page([note('b', 2), note('a', 1)]));
    expect(ids(withFirstPage(before, page([note('b', 2)])))).toBe('b');
  });

  test('keeps older pages and their continuation when it joins them', () => {
    let feed = withFirstPage(EMPTY_FEED, page([note('d', 4), note('c', 3)], 'after c'));
    feed = withNextPage(feed, page([note('b', 2), note('a', 1)], 'after a'));
    feed = withFirstPage(feed, page([note('e', 5), note('d', 4)], 'after d'));
    expect(ids(feed)).toBe('e d c b a');
    expect(feed.continuation).toBe('after a');
  });

  test('starts over when more than a page was missed, so that no gap is hidden', () => {
    const before = withFirstPage(EMPTY_FEED, page([note('b', 2), note('a', 1)], 'after a'));
    const feed = withFirstPage(before, page([note('f', 6), note('e', 5)], 'after e'));
    expect(ids(feed)).toBe('f e');
    expect(feed.continuation).toBe('after e');
  });

  test('does not lose an event that arrived while the page was on its way', () => {
    const asked = beginRead(withFirstPage(EMPTY_FEED, page([note('a', 1)])));
    const arrived = withNotification(asked, note('b', 2));
    expect(ids(withFirstPage(arrived, page([note('a', 1)])))).toBe('b a');
  });

  test('does not bring back what was withdrawn while the page was on its way', () => {
    const asked = beginRead(withFirstPage(EMPTY_FEED, page([note('b', 2), note('a', 1)])));
    const withdrawn = withWithdrawal(asked, 'b');
    expect(ids(withFirstPage(withdrawn, page([note('b', 2), note('a', 1)])))).toBe('a');
  });

  test('keeps what it knows of accounts that did not answer, and says which', () => {
    const before = withFirstPage(EMPTY_FEED, page([note('b', 2, 'asia'), note('a', 1)]));
    const feed = withFirstPage(before, page([note('a', 1)], 'again', ['asia']));
    expect(ids(feed)).toBe('b a');
    expect(feed.missing).toEqual(['asia']);
  });
});

test('a page that follows may bring newer items of an account that was missing', () => {
  const before = withFirstPage(EMPTY_FEED, page([note('b', 2)], 'more', ['asia']));
  const feed = withNextPage(before, page([note('c', 3, 'asia'), note('a', 1)]));
  expect(ids(feed)).toBe('c b a');
  expect(feed).toMatchObject({ continuation: null, missing: [] });
});

test('reading one notification leaves the others unread', () => {
  const feed = withRead(withFirstPage(EMPTY_FEED, page([note('b', 2), note('a', 1)])), 'a', 7);
  expect(countUnread(feed)).toBe(1);
  expect(feed.items[1]?.readAt).toBe(7);
});
