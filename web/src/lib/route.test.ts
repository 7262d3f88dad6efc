import { expect, test } from 'vitest';
import { browseRoute, formatFilter, parseFilter } from './filter';
import { formatRoute, parseRoute, type Route } from './route';

const routes: Route[] = [
  { view: 'feed' },
  { view: 'article', id: 'usa.01HF' },
  { view: 'article', id: 'a/b?c#d%', token: '0:-1#42' },
  { view: 'edit', id: 'usa.01HF' },
  { view: 'flight', id: 'usa.01HF' },
  { view: 'browse', by: 'author', value: 'ann & bob=?' },
  { view: 'browse', by: 'tag', value: 'ski' },
  { view: 'publish' },
  { view: 'subscriptions' },
  { view: 'world' },
];

test.each(routes)('%j is found again by its address', (route) => expect(parseRoute(formatRoute(route))).toEqual(route));

test.each(['', '#', '#/', '#/nonsense', '#/articles', '#/articles/', '#/%E0%A4%A'])('%j is the feed', (hash) =>
  expect(parseRoute(hash)).toEqual({ view: 'feed' }),
);

test.each([
  ['author:ann', 'author', 'ann'],
  ['category:a:b', 'category', 'a:b'],
  ['tag:', 'tag', ''],
  ['sports', 'category', 'sports'],
  ['other:thing', 'category', 'other:thing'],
] as const)('the filter %j asks for the %s %j', (filter, by, value) => {
  expect(parseFilter(filter)).toEqual({ by, value });
  expect(browseRoute(filter)).toEqual({ view: 'browse', by, value });
  expect(parseFilter(formatFilter(by, value))).toEqual({ by, value });
});
