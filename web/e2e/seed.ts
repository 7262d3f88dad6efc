// What tests need to find in the platform, put there through its API.
import { randomBytes } from 'node:crypto';
import type { PlatformRegion, World } from '../src/lib/types';
import { services } from './browser';

/** Is there a world whose links and regions can be moved? Services on clusters have none. */
export const hasWorld = !process.env['ORRERY_TEST_CLUSTER'];

/** Tests share one platform: every name is new. */
export function fresh(name: string): string {
  return `${name}-${randomBytes(4).toString('hex')}`;
}

export async function seedArticles(author: string, category: string, n_articles: number): Promise<void> {
  const base = services[0]!.url;
  const { token } = (await post(base, '/v1/dev/tokens', { user: author })) as { token: string };
  for (let idx = 1; idx <= n_articles; idx++) {
    const draft = { category, tags: [], title: `Number ${idx}`, body: 'One of many.' };
    await post(base, '/v1/articles', draft, { Authorization: `Bearer ${token}`, 'Idempotency-Key': fresh('seed') });
  }
}

/** Puts the world back as it was: whatever a test has left behind must not be the next one's trouble. */
export async function restoreWorld(): Promise<void> {
  if (!hasWorld) return;
  const base = services[0]!.url;
  const world = (await (await fetch(new URL('/v1/world', base))).json()) as World;
  const stopped = world.regions.filter(({ state }) => state === 'stopped');
  for (const { name } of stopped) await post(base, `/v1/world/regions/${encodeURIComponent(name)}/start`, {});
  const broken = world.links.filter(({ cut, paused }) => cut || paused);
  for (const { from, to, latencyMs, jitterMs, loss } of broken)
    await put(base, '/v1/world/links', { from, to, latencyMs, jitterMs, loss, cut: false, paused: false });
  const known = (await (await fetch(new URL('/v1/regions', base))).json()) as { regions: PlatformRegion[] };
  for (const { tag, regions } of world.accounts) {
    const home = known.regions.find(({ account }) => account === tag)!.name;
    const writer = regions.find(({ role }) => role === 'write')!.name;
    if (writer !== home) await post(base, `/v1/world/accounts/${tag}/failover`, { region: home });
  }
}

function post(base: string, path: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  return send('POST', base, path, body, headers);
}

function put(base: string, path: string, body: object): Promise<unknown> {
  return send('PUT', base, path, body, {});
}

async function send(
  method: string,
  base: string,
  path: string,
  body: object,
  headers: Record<string, string>,
): Promise<unknown> {
  const response = await fetch(new URL(path, base), {
    method,
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return response.json();
}
