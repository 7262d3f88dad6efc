// What the services send and take, as docs/guides/publishing-api.md and docs/guides/world-api.md say it.

export interface PlatformRegion {
  name: string;
  account: string;
  /** Absent where this service does not know it. */
  url?: string;
  local: boolean;
}

export interface Regions {
  region: string;
  regions: PlatformRegion[];
}

export interface Token {
  user: string;
  token: string;
  expiresAt: number;
}

export interface AccountAnswer {
  account: string;
  region?: string;
  lsn?: number;
  lagMs?: number;
  failed?: string;
}

/** Which accounts answered, and which did not in time. */
export interface Coverage {
  missing: string[];
  accounts: AccountAnswer[];
}

export interface Page<Item> extends Coverage {
  items: Item[];
  continuation?: string;
}

export interface ArticleDraft {
  category: string;
  tags: string[];
  title: string;
  body: string;
}

/** An article as lists show it: without its body. */
export interface ArticleHead {
  id: string;
  account: string;
  author: string;
  category: string;
  tags: string[];
  title: string;
  state: 'published' | 'retracted';
  revision: number;
  createdAt: number;
  changedAt: number;
  etag: string;
}

export interface Article extends ArticleHead {
  body: string;
}

export interface Review {
  id: string;
  account: string;
  articleId: string;
  user: string;
  text: string;
  rating: number;
  createdAt: number;
  changedAt: number;
}

export interface Summary extends Coverage {
  count: number;
  average: number | null;
  histogram: number[];
}

export interface Subscription {
  filter: string;
  since: number;
}

/** A new subscription; the rest is there when articles of before were asked for. */
export interface Subscribed extends Subscription {
  backfilled?: number;
  missing?: string[];
}

export interface Subscriptions extends Coverage {
  items: Subscription[];
}

export interface Notification {
  id: string;
  account: string;
  articleId: string;
  title: string;
  author: string;
  category: string;
  filter: string;
  matchedFilters: string[];
  publishedAt: number;
  createdAt: number;
  readAt: number | null;
  articleToken?: string | null;
}

/** The change waits in this region until the account that owns the item can be reached. */
export interface Queued {
  queued: true;
}

export interface WorldRegion {
  name: string;
  latitude: number;
  longitude: number;
  url: string;
  state: 'running' | 'stopped';
}

export interface AccountRegion {
  name: string;
  role: 'write' | 'read';
  state: string;
  /** Null where it is not known, which is not zero. */
  lagMs: number | null;
  lagTransactions: number | null;
  readsTotal: number;
  writesTotal: number;
}

export interface WorldAccount {
  id: string;
  tag: string;
  endpoint: string;
  regions: AccountRegion[];
}

export interface LinkSettings {
  from: string;
  to: string;
  latencyMs: number;
  jitterMs: number;
  loss: number;
  cut: boolean;
  paused: boolean;
}

export interface Link extends LinkSettings {
  bytesPerSecond: number | null;
}

export interface FanoutSource {
  source: string;
  running: boolean;
  waiting: number | null;
  waitingMs: number | null;
  deadLetters: number;
}

export interface ProcessorLease {
  source: string;
  lease: string;
  owner: string | null;
  position: string | null;
}

export interface Fanout {
  /** Where it runs: where the account takes its writes. Null while nobody runs it. */
  region: string | null;
  account: string;
  sources: FanoutSource[];
  leases: ProcessorLease[];
}

export interface World {
  regions: WorldRegion[];
  accounts: WorldAccount[];
  links: Link[];
  fanout: Fanout[];
}
