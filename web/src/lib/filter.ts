// Subscription filters as the API writes them: `author:NAME`, `category:NAME`, `tag:NAME`; a bare value is a category.
import { BROWSE_BY, type BrowseBy, type Route } from './route';

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
