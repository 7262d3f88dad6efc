// Which region's service is asked, and as whom. Region and name are kept by the browser; tokens live as long as the page.
import { explain } from '../lib/api';
import { developmentToken, Publishing, readRegions } from '../lib/publishing';
import type { PlatformRegion, Token } from '../lib/types';
import { recall, remember } from './storage';

/** A token is replaced this long before it ends. */
const RENEW_BEFORE_MS = 60_000;

class Session {
  regions = $state.raw<PlatformRegion[]>([]);
  /** The region whose service served this page. */
  home = $state('');
  chosen = $state(recall('region'));
  user = $state(recall('user'));
  problem = $state<string | null>(null);
  private readonly tokens = new Map<string, Promise<Token>>();

  region = $derived(this.regions.some((region) => region.name === this.chosen) ? (this.chosen ?? '') : this.home);
  regionNames = $derived(this.regions.map((region) => region.name));
  /** The service of the chosen region, for the chosen user. A new one whenever either changes. */
  service = $derived(this.regions.length === 0 ? null : this.serviceOf(this.region, this.user));

  async start(): Promise<void> {
    try {
      const { region, regions } = await readRegions('');
      this.home = region;
      this.regions = regions;
      this.problem = null;
    } catch (problem) {
      this.problem = explain(problem);
    }
  }

  choose(region: string): void {
    this.chosen = region;
    remember('region', region);
  }

  /** Throws when the service does not give a token for that name. */
  async signIn(user: string): Promise<void> {
    const base = this.baseOf(this.region);
    const token = await developmentToken(base, user);
    this.tokens.set(tokenKey(base, user), Promise.resolve(token));
    this.become(user);
  }

  /** For services that give no tokens themselves. It is not stored. */
  useToken(user: string, token: string): void {
    for (const region of this.regions) {
      const known = { user, token, expiresAt: Number.MAX_SAFE_INTEGER };
      this.tokens.set(tokenKey(this.baseOf(region.name), user), Promise.resolve(known));
    }
    this.become(user);
  }

  signOut(): void {
    this.tokens.clear();
    this.become(null);
  }

  /** `''` for the service that served the page. */
  baseOf(region: string): string {
    const found = this.regions.find(({ name }) => name === region);
    return found === undefined || found.local ? '' : (found.url ?? '');
  }

  accountOf(region: string): string {
    return this.regions.find(({ name }) => name === region)?.account ?? '';
  }

  homeOf(account: string): string {
    return this.regions.find((region) => region.account === account)?.name ?? '';
  }

  private become(user: string | null): void {
    this.user = user;
    remember('user', user);
  }

  private serviceOf(region: string, user: string | null): Publishing {
    const base = this.baseOf(region);
    return new Publishing(base, {
      token: () => this.tokenFor(base, user),
      renew: () => {
        if (user !== null) this.tokens.delete(tokenKey(base, user));
        return this.tokenFor(base, user);
      },
    });
  }

  private async tokenFor(base: string, user: string | null): Promise<string | null> {
    if (user === null) return null;
    const key = tokenKey(base, user);
    const known = await this.tokens.get(key)?.catch(() => undefined);
    if (known !== undefined && known.expiresAt - RENEW_BEFORE_MS > Date.now()) return known.token;
    const asked = developmentToken(base, user);
    this.tokens.set(key, asked);
    return (await asked).token;
  }
}

function tokenKey(base: string, user: string): string {
  return `${base} ${user}`;
}

export const session = new Session();
