// The live notification feed of one user in one region: the first page, then the stream, then the first page again whenever
// the stream may have left something out.
import { ApiError, explain } from '../lib/api';
import * as feeds from '../lib/feed';
import { isQueued, type Publishing } from '../lib/publishing';
import type { Notification } from '../lib/types';
import { notices } from './notices.svelte';

const RECONNECT_MS = [1000, 2000, 5000, 10_000];
const CATCH_UP_MS = [2000, 3000, 5000, 10_000];
/** A page that nobody sees gives its connection back: browsers have few per service, shared by all tabs. */
const HIDDEN_MS = 30_000;

class LiveFeed {
  feed = $state.raw(feeds.EMPTY_FEED);
  stream = $state<'connecting' | 'live' | 'lost'>('connecting');
  problem = $state<string | null>(null);
  known = $state(false);
  loading = $state(false);
  unread = $derived(feeds.countUnread(this.feed));
  private service: Publishing | null = null;
  private source: EventSource | null = null;
  private timers = new Set<ReturnType<typeof setTimeout>>();
  private hiding: ReturnType<typeof setTimeout> | undefined;
  private reading = false;
  private readAgain = false;
  /** The page that was asked for last; an answer to an earlier question changes nothing. */
  private question = 0;
  private n_failures = 0;
  private n_catchUps = 0;

  /** Follows the feed of `service` until the returned function is called. */
  follow(service: Publishing): () => void {
    this.stop();
    this.service = service;
    [this.feed, this.known, this.problem, this.stream] = [feeds.EMPTY_FEED, false, null, 'connecting'];
    [this.n_failures, this.n_catchUps, this.reading, this.readAgain] = [0, 0, false, false];
    [this.question, this.loading] = [this.question + 1, false];
    void this.refresh();
    void this.connect(service);
    const onVisibility = () => this.hideOrShow(service);
    document.addEventListener('visibilitychange', onVisibility);
    return () => {
      document.removeEventListener('visibilitychange', onVisibility);
      this.stop();
    };
  }

  async more(): Promise<void> {
    const service = this.service;
    const { continuation } = this.feed;
    if (service === null || continuation === null || this.loading) return;
    const question = ++this.question;
    this.loading = true;
    try {
      const page = await service.notifications(continuation);
      // A re-read may have put another first page there meanwhile, which goes on elsewhere.
      const isNext = question === this.question && continuation === this.feed.continuation;
      if (isNext) this.feed = feeds.withNextPage(this.feed, page);
    } catch (problem) {
      if (question === this.question) notices.problem(explain(problem));
    } finally {
      if (question === this.question) this.loading = false;
    }
  }

  async markRead(notification: Notification): Promise<void> {
    const service = this.service;
    if (service === null || notification.readAt !== null) return;
    this.feed = feeds.withRead(this.feed, notification.id, Date.now());
    try {
      const answer = await service.markRead(notification.id);
      if (!isQueued(answer) && service === this.service)
        this.feed = feeds.withRead(this.feed, notification.id, answer.readAt);
    } catch (problem) {
      if (service === this.service) this.feed = feeds.withRead(this.feed, notification.id, null);
      notices.problem(explain(problem));
    }
  }

  /** One re-read at a time; a wish that comes meanwhile is granted afterwards. */
  async refresh(): Promise<void> {
    if (this.reading) {
      this.readAgain = true;
      return;
    }
    const service = this.service;
    if (service === null) return;
    this.reading = true;
    this.feed = feeds.beginRead(this.feed);
    try {
      const page = await service.notifications();
      if (service !== this.service) return;
      this.feed = feeds.withFirstPage(this.feed, page);
      [this.known, this.problem] = [true, null];
      this.n_catchUps = page.missing.length === 0 ? 0 : this.n_catchUps + 1;
      if (page.missing.length > 0) this.later(CATCH_UP_MS, this.n_catchUps, () => void this.refresh());
    } catch (problem) {
      if (service !== this.service) return;
      this.problem = explain(problem);
      this.later(RECONNECT_MS, ++this.n_failures, () => void this.refresh());
    } finally {
      if (service === this.service) this.reading = false;
    }
    if (this.readAgain) {
      this.readAgain = false;
      await this.refresh();
    }
  }

  private async connect(service: Publishing): Promise<void> {
    let address: string;
    try {
      address = await service.streamAddress();
    } catch (problem) {
      if (service === this.service) this.reconnect(service, problem);
      return;
    }
    if (service !== this.service) return;
    this.source?.close();
    const source = new EventSource(address);
    this.source = source;
    source.addEventListener('open', () => {
      [this.stream, this.n_failures] = ['live', 0];
      void this.refresh();
    });
    source.addEventListener('notification', (event) => {
      this.feed = feeds.withNotification(this.feed, JSON.parse(event.data) as Notification);
    });
    source.addEventListener('withdrawn', (event) => {
      this.feed = feeds.withWithdrawal(this.feed, (JSON.parse(event.data) as { id: string }).id);
    });
    source.addEventListener('missed', () => void this.refresh());
    source.addEventListener('error', () => {
      this.stream = 'lost';
      // A refused stream is closed for good, unlike a broken one, which the browser opens again.
      if (source.readyState === EventSource.CLOSED) this.reconnect(service, null);
    });
  }

  private hideOrShow(service: Publishing): void {
    if (service !== this.service) return;
    if (document.hidden) {
      this.hiding = this.later([HIDDEN_MS], 1, () => {
        this.source?.close();
        this.source = null;
      });
    } else if (this.source === null) {
      this.stream = 'connecting';
      void this.connect(service);
    } else {
      clearTimeout(this.hiding);
    }
  }

  private reconnect(service: Publishing, problem: unknown): void {
    this.stream = 'lost';
    if (problem instanceof ApiError && problem.refused) this.problem = problem.message;
    this.later(RECONNECT_MS, ++this.n_failures, () => void this.connect(service));
  }

  private later(steps: number[], n: number, action: () => void): ReturnType<typeof setTimeout> {
    const timer = setTimeout(
      () => {
        this.timers.delete(timer);
        action();
      },
      steps[Math.min(n, steps.length) - 1] ?? 1000,
    );
    this.timers.add(timer);
    return timer;
  }

  private stop(): void {
    this.source?.close();
    this.timers.forEach(clearTimeout);
    this.timers.clear();
    [this.source, this.service] = [null, null];
  }
}

export const liveFeed = new LiveFeed();
