// The notification feed as a value: pages and stream events go in, a list comes out, newest first and without doubles.
//
// The stream is a hint and pages are the record. A re-read of the first page therefore replaces what it covers, except for
// what the page could not know: accounts it is missing, and events that arrived while it was on its way.
import type { Notification, Page } from './types';

export interface Feed {
  items: Notification[];
  /** Where older pages go on; null on the last one. */
  continuation: string | null;
  /** Accounts that did not answer in time. */
  missing: string[];
  /** Ids that the stream brought or took since the running re-read was asked for. */
  arrived: ReadonlySet<string>;
  withdrawn: ReadonlySet<string>;
}

export const EMPTY_FEED: Feed = {
  items: [],
  continuation: null,
  missing: [],
  arrived: new Set(),
  withdrawn: new Set(),
};

/** To be called when a first page is asked for: from here on, events outrank it. */
export function beginRead(feed: Feed): Feed {
  return { ...feed, arrived: new Set(), withdrawn: new Set() };
}

export function withFirstPage(feed: Feed, page: Page<Notification>): Feed {
  const read = stillRead(feed);
  const oldest = page.items.at(-1);
  const listed = new Set(page.items.map((item) => item.id));
  // Without a common item there may be a gap between the page and what was read before it.
  const overlaps = page.continuation === undefined || feed.items.some((item) => listed.has(item.id));
  const older = (item: Notification) =>
    overlaps && page.continuation !== undefined && oldest !== undefined && newestFirst(oldest, item) < 0;
  const unknownToPage = (item: Notification) => feed.arrived.has(item.id) || page.missing.includes(item.account);
  const kept = feed.items.filter((item) => older(item) || unknownToPage(item));
  const hasOlder = feed.items.some(older);
  return {
    ...feed,
    items: ordered([...kept, ...page.items.filter((item) => !feed.withdrawn.has(item.id)).map(read)]),
    continuation: hasOlder ? feed.continuation : (page.continuation ?? null),
    missing: page.missing,
  };
}

export function withNextPage(feed: Feed, page: Page<Notification>): Feed {
  return {
    ...feed,
    items: ordered([...feed.items, ...page.items.filter((item) => !feed.withdrawn.has(item.id))]),
    continuation: page.continuation ?? null,
    missing: page.missing,
  };
}

export function withNotification(feed: Feed, notification: Notification): Feed {
  return {
    ...feed,
    items: ordered([...feed.items, stillRead(feed)(notification)]),
    arrived: added(feed.arrived, notification.id),
    withdrawn: without(feed.withdrawn, notification.id),
  };
}

export function withWithdrawal(feed: Feed, id: string): Feed {
  return {
    ...feed,
    items: feed.items.filter((item) => item.id !== id),
    arrived: without(feed.arrived, id),
    withdrawn: added(feed.withdrawn, id),
  };
}

export function withRead(feed: Feed, id: string, readAt: number | null): Feed {
  return { ...feed, items: feed.items.map((item) => (item.id === id ? { ...item, readAt } : item)) };
}

export function countUnread(feed: Feed): number {
  return feed.items.filter((item) => item.readAt === null).length;
}

/** What was read stays read: neither a replica that has not heard of it yet nor a copy in another account counts. */
function stillRead(feed: Feed): (item: Notification) => Notification {
  const readAt = new Map(feed.items.map((item) => [item.id, item.readAt]));
  return (item) => ({ ...item, readAt: item.readAt ?? readAt.get(item.id) ?? null });
}

/** Later entries of the list replace earlier ones with the same id. */
function ordered(items: Notification[]): Notification[] {
  return [...new Map(items.map((item) => [item.id, item])).values()].sort(newestFirst);
}

function newestFirst(a: Notification, b: Notification): number {
  return b.publishedAt - a.publishedAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

function added(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  return new Set(ids).add(id);
}

function without(ids: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const rest = new Set(ids);
  rest.delete(id);
  return rest;
}
