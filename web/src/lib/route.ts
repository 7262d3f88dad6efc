// Addresses of views, in the part of the address after `#`. Parsing never fails: what is not known is the feed.

export type Route =
  | { view: 'feed' }
  | { view: 'article'; id: string; token?: string }
  | { view: 'edit'; id: string }
  | { view: 'flight'; id: string }
  | { view: 'browse'; by: BrowseBy; value: string }
  | { view: 'publish' }
  | { view: 'subscriptions' }
  | { view: 'world' };

export type BrowseBy = 'author' | 'category' | 'tag';

export const BROWSE_BY: readonly BrowseBy[] = ['category', 'author', 'tag'];

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = split(hash.replace(/^#\/?/, ''), '?');
  const [head = '', id = '', tail = ''] = path.split('/').map(decode);
  const parameters = new URLSearchParams(query);
  switch (head) {
    case 'articles':
      return id === '' ? { view: 'feed' } : parseArticle(id, tail, parameters);
    case 'browse':
      return parseBrowse(parameters);
    case 'publish':
    case 'subscriptions':
    case 'world':
      return { view: head };
    default:
      return { view: 'feed' };
  }
}

export function formatRoute(route: Route): string {
  switch (route.view) {
    case 'feed':
      return '#/';
    case 'article':
      return (
        `#/articles/${encodeURIComponent(route.id)}` + (route.token ? `?token=${encodeURIComponent(route.token)}` : '')
      );
    case 'edit':
    case 'flight':
      return `#/articles/${encodeURIComponent(route.id)}/${route.view}`;
    case 'browse':
      return `#/browse?${new URLSearchParams({ [route.by]: route.value })}`;
    default:
      return `#/${route.view}`;
  }
}

function parseArticle(id: string, tail: string, parameters: URLSearchParams): Route {
  if (tail === 'edit' || tail === 'flight') return { view: tail, id };
  const token = parameters.get('token');
  return token ? { view: 'article', id, token } : { view: 'article', id };
}

function parseBrowse(parameters: URLSearchParams): Route {
  for (const by of BROWSE_BY) {
    const value = parameters.get(by);
    if (value !== null) return { view: 'browse', by, value };
  }
  return { view: 'browse', by: 'category', value: '' };
}

function split(text: string, at: string): [string, string] {
  const position = text.indexOf(at);
  return position < 0 ? [text, ''] : [text.slice(0, position), text.slice(position + 1)];
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
