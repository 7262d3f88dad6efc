// Subscription filters as the API writes them: `author:NAME`, `category:NAME`, `tag:NAME`; a bare value is a category.
import { formatList } from './format';
import { BROWSE_BY, type BrowseBy, type Route } from './route';
import type { Subscribed } from './types';

/** Most articles of before that a new subscription brings. */
export const BACKFILL_MAX = 100;

export function parseFilter(filter: string): { by: BrowseBy; value: string } {
  const by = BROWSE_BY.find((kind) => filter.startsWith(`${kind}:`));
  return by ? { by, value: filter.slice(by.length + 1) } : { by: 'category', value: filter };
}

export function formatFilter(by: BrowseBy, value: string): string {
  return `${by}:${value}`;
}

export function browseRoute(filter: string): Route {
  return { view: 'browse', ...parseFilter(filter) };
}

/** What a new subscription has brought, in words. */
export function describeSubscribed({ filter, backfilled, missing = [] }: Subscribed): string {
  if (backfilled === undefined) return `You follow ${filter}`;
  const articles = backfilled === 1 ? '1 earlier article' : `${backfilled} earlier articles`;
  const rest = missing.length === 0 ? '' : `; those of ${formatList(missing)} could not be read`;
  return `You follow ${filter}, with ${articles}${rest}`;
}
