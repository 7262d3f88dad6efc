// The world as it was a moment ago, a minute of its lag, and the levers that change it.
import { ApiError, explain } from '../lib/api';
import { EMPTY_LAG, withSample } from '../lib/lag';
import type { Link, World, WorldRegion } from '../lib/types';
import { WorldApi } from '../lib/world';
import { notices } from './notices.svelte';
import { session } from './session.svelte';

const POLL_MS = 500;

class WorldState {
  /** Null until somebody has answered. */
  available = $state<boolean | null>(null);
  world = $state.raw<World | null>(null);
  lag = $state.raw(EMPTY_LAG);
  problem = $state<string | null>(null);
  /** Names of levers that were pulled and have not answered yet. */
  busy = $state.raw<ReadonlySet<string>>(new Set());
  private readonly api = new WorldApi(() => [
    '',
    ...session.regions.filter((r) => !r.local && r.url).map((r) => r.url!),
  ]);

  async refresh(): Promise<void> {
    try {
      const world = await this.api.read();
      this.available = world !== null;
      this.world = world;
      this.problem = null;
      if (world !== null) this.lag = withSample(this.lag, Date.now(), world.accounts);
    } catch (problem) {
      this.problem = explain(problem);
      // A refusal is an answer: there is no world for this page.
      if (problem instanceof ApiError && problem.refused) this.available = false;
    }
  }

  /** Where an account is written now; undefined where that is not known. */
  writeRegionOf(tag: string): string | undefined {
    return this.world?.accounts.find((account) => account.tag === tag)?.regions.find(({ role }) => role === 'write')
      ?.name;
  }

  /** Polls until the returned function is called; pauses while nobody can see the page. */
  watch(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let watching = true;
    const turn = async () => {
      if (!document.hidden) await this.refresh();
      if (watching) timer = setTimeout(turn, POLL_MS);
    };
    void turn();
    return () => {
      watching = false;
      clearTimeout(timer);
    };
  }

  /** Changes one direction, or both when `bothWays`. */
  async changeLink(link: Link, change: Partial<Link>, bothWays: boolean): Promise<void> {
    const back = this.world?.links.find(({ from, to }) => from === link.to && to === link.from);
    const wanted = bothWays && back ? [link, back] : [link];
    await this.pull(`link ${link.from} ${link.to}`, async () => {
      for (const each of wanted) await this.api.setLink({ ...each, ...change, from: each.from, to: each.to });
    });
  }

  async failover(tag: string, region: string): Promise<void> {
    await this.pull(`failover ${tag}`, async () => {
      await this.api.failover(tag, region);
      notices.done(`${region} now takes the writes of ${tag}`);
    });
  }

  async setRegion(region: WorldRegion, running: boolean): Promise<void> {
    await this.pull(`region ${region.name}`, async () => {
      await this.api.setRegion(region.name, running);
      notices.done(`${region.name} ${running ? 'runs again' : 'is stopped'}`);
    });
  }

  private async pull(lever: string, action: () => Promise<void>): Promise<void> {
    this.busy = new Set(this.busy).add(lever);
    try {
      await action();
    } catch (problem) {
      notices.problem(explain(problem));
    } finally {
      this.busy = new Set([...this.busy].filter((name) => name !== lever));
      await this.refresh();
    }
  }
}

export const worldState = new WorldState();
