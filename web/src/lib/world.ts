// The world API of a platform in development, as docs/guides/world-api.md describes it.
//
// Any region's service answers for the whole world, so a stopped region only moves the question to the next one.
import { ApiError, call, type Call } from './api';
import type { Link, LinkSettings, World, WorldAccount, WorldRegion } from './types';

const TIMEOUT_MS = 4000;

export class WorldApi {
  /** `bases` gives the services to ask, most wanted first. */
  constructor(private readonly bases: () => string[]) {}

  /** Null where the platform runs without a world to play with. */
  async read(): Promise<World | null> {
    try {
      return await this.ask<World>('/v1/world');
    } catch (problem) {
      if (problem instanceof ApiError && problem.status === 404) return null;
      throw problem;
    }
  }

  setLink(settings: LinkSettings): Promise<Link[]> {
    const { from, to, latencyMs, jitterMs, loss, cut, paused } = settings;
    return this.ask('/v1/world/links', { method: 'PUT', body: { from, to, latencyMs, jitterMs, loss, cut, paused } });
  }

  failover(tag: string, region: string): Promise<WorldAccount> {
    // A planned change of the write region waits until the target has everything.
    const path = `/v1/world/accounts/${encodeURIComponent(tag)}/failover`;
    return this.ask(path, { method: 'POST', body: { region }, timeoutMs: 60_000 });
  }

  setRegion(name: string, running: boolean): Promise<WorldRegion> {
    const path = `/v1/world/regions/${encodeURIComponent(name)}/${running ? 'start' : 'stop'}`;
    return this.ask(path, { method: 'POST', timeoutMs: 60_000 });
  }

  /** A service that cannot be reached passes the question on; every answer counts. All questions may be repeated. */
  private async ask<Body>(path: string, request: Call = {}): Promise<Body> {
    let last: unknown = new ApiError(0, 'unreachable', 'no service is known', '');
    for (const base of this.bases()) {
      try {
        return (await call<Body>(base, path, { timeoutMs: TIMEOUT_MS, ...request })).body;
      } catch (problem) {
        if (!(problem instanceof ApiError) || problem.status !== 0) throw problem;
        last = problem;
      }
    }
    throw last;
  }
}
