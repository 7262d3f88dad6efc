// The publishing API of one region's service, one method per request of docs/guides/publishing-api.md.
import { ApiError, address, call, type Call } from './api';
import type {
  Article,
  ArticleDraft,
  ArticleHead,
  Notification,
  Page,
  Queued,
  Regions,
  Review,
  Subscribed,
  Subscriptions,
  Summary,
  Token,
} from './types';

export const PAGE_SIZE = 20;

export type ArticleList = { by: 'author' | 'category' | 'tag'; value: string };

export function readRegions(base: string): Promise<Regions> {
  return body(call<Regions>(base, '/v1/regions', { timeoutMs: 4000 }));
}

export function developmentToken(base: string, user: string): Promise<Token> {
  return body(call<Token>(base, '/v1/dev/tokens', { method: 'POST', body: { user } }));
}

/** `token` is asked for before every call that needs one; `renew` once when the service does not take it any more. */
export interface Identity {
  token(): Promise<string | null>;
  renew(): Promise<string | null>;
}

export class Publishing {
  constructor(
    readonly base: string,
    private readonly identity: Identity,
  ) {}

  async publish(draft: ArticleDraft, idempotencyKey: string): Promise<Article> {
    const headers = { 'Idempotency-Key': idempotencyKey };
    return (await this.signed<Article>('/v1/articles', { method: 'POST', body: draft, headers })).body;
  }

  article(id: string, articleToken?: string): Promise<Article> {
    return body(call<Article>(this.base, articlePath(id), { query: { token: articleToken } }));
  }

  articles(list: ArticleList, continuation?: string): Promise<Page<ArticleHead>> {
    const query = { [list.by]: list.value, pageSize: String(PAGE_SIZE), continuation };
    return body(call<Page<ArticleHead>>(this.base, '/v1/articles', { query }));
  }

  async edit(id: string, draft: ArticleDraft, etag: string): Promise<Article | Queued> {
    const headers = { 'If-Match': etag };
    return (await this.signed<Article | Queued>(articlePath(id), { method: 'PUT', body: draft, headers })).body;
  }

  async retract(id: string, etag: string): Promise<Article | Queued> {
    const headers = { 'If-Match': etag };
    return (await this.signed<Article | Queued>(articlePath(id), { method: 'DELETE', headers })).body;
  }

  async review(id: string, text: string, rating: number): Promise<Review> {
    return (await this.signed<Review>(`${articlePath(id)}/review`, { method: 'PUT', body: { text, rating } })).body;
  }

  reviews(id: string, continuation?: string): Promise<Page<Review>> {
    const query = { pageSize: String(PAGE_SIZE), continuation };
    return body(call<Page<Review>>(this.base, `${articlePath(id)}/reviews`, { query }));
  }

  summary(id: string): Promise<Summary> {
    return body(call<Summary>(this.base, `${articlePath(id)}/summary`));
  }

  async subscriptions(): Promise<Subscriptions> {
    return (await this.signed<Subscriptions>('/v1/subscriptions')).body;
  }

  /** `backfill`: how many of the last matching articles to be told of as well. */
  async subscribe(filter: string, backfill = 0): Promise<Subscribed> {
    const body = backfill > 0 ? { filter, backfill } : { filter };
    return (await this.signed<Subscribed>('/v1/subscriptions', { method: 'POST', body })).body;
  }

  async unsubscribe(filter: string): Promise<{ filter: string; queued: string[] }> {
    const path = `/v1/subscriptions/${encodeURIComponent(filter)}`;
    return (await this.signed<{ filter: string; queued: string[] }>(path, { method: 'DELETE' })).body;
  }

  async migrateSubscriptions(): Promise<{ moved: string[] }> {
    return (await this.signed<{ moved: string[] }>('/v1/subscriptions/migrate', { method: 'POST' })).body;
  }

  async notifications(continuation?: string): Promise<Page<Notification>> {
    const query = { pageSize: String(PAGE_SIZE), continuation };
    return (await this.signed<Page<Notification>>('/v1/notifications', { query })).body;
  }

  async markRead(id: string): Promise<{ readAt: number } | Queued> {
    const path = `/v1/notifications/${encodeURIComponent(id)}/read`;
    return (await this.signed<{ readAt: number } | Queued>(path, { method: 'POST' })).body;
  }

  /** `EventSource` cannot send headers, so the token travels in the address. */
  async streamAddress(): Promise<string> {
    return address(this.base, '/v1/notifications/stream', { access_token: (await this.identity.token()) ?? undefined });
  }

  private async signed<Body>(path: string, request: Call = {}): Promise<{ status: number; body: Body }> {
    const token = await this.identity.token();
    try {
      return await call<Body>(this.base, path, { ...request, token });
    } catch (problem) {
      if (!(problem instanceof ApiError) || problem.status !== 401) throw problem;
      return call<Body>(this.base, path, { ...request, token: await this.identity.renew() });
    }
  }
}

export function isQueued(answer: object): answer is Queued {
  return 'queued' in answer;
}

function articlePath(id: string): string {
  return `/v1/articles/${encodeURIComponent(id)}`;
}

async function body<Body>(answer: Promise<{ body: Body }>): Promise<Body> {
  return (await answer).body;
}
