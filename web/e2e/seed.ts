// What tests need to find in the platform, put there through its API.
import { randomBytes } from 'node:crypto';
import { services } from './browser';

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

async function post(base: string, path: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const response = await fetch(new URL(path, base), {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return response.json();
}
