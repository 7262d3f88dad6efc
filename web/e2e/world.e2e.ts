import type { Page } from 'playwright-core';
import { afterEach, expect, test } from 'vitest';
import { arrival, go, here, screenshot, signIn, there, visitor, waitUntilArrived } from './browser';
import { fresh, restoreWorld } from './seed';

/** How far a region is behind, as the page shows it. */
function shownLag(page: Page, account: string, region: string) {
  return page.getByRole('region', { name: account, exact: true }).locator(`[data-region="${region}"] [data-lag]`);
}

async function lagSeconds(page: Page, account: string, region: string): Promise<number> {
  const text = (await shownLag(page, account, region).textContent()) ?? '';
  const value = Number.parseFloat(text);
  return text.endsWith('ms') ? value / 1000 : value;
}

/** The account that belongs to the first region. */
async function homeAccount(page: Page): Promise<string> {
  const response = await page.request.get(new URL('/v1/regions', page.url()).href);
  const { regions } = (await response.json()) as { regions: { name: string; account: string }[] };
  return regions.find(({ name }) => name === here)!.account;
}

async function world(): Promise<Page> {
  const { page } = await visitor();
  await signIn(page, fresh('ann'));
  await go(page, 'World');
  await page.getByRole('button', { name: `Cut ${here} → ${there}` }).waitFor();
  return page;
}

async function send(page: Page): Promise<void> {
  await page.getByRole('button', { name: `Send one from ${here}` }).click();
  await waitUntilArrived(page, here);
}

afterEach(restoreWorld);

test('behind a cut link the lag grows and nothing arrives, until the link is healed', async () => {
  const page = await world();
  const account = await homeAccount(page);
  await page.getByRole('button', { name: `Cut ${here} → ${there}` }).click();
  const row = page.getByRole('listitem').filter({ has: page.getByText(`${here} → ${there}`) });
  await row.getByText('cut', { exact: true }).waitFor();
  await page.locator(`.arc.cut[data-from="${here}"][data-to="${there}"]`).waitFor();
  await send(page);
  await expect.poll(() => lagSeconds(page, account, there), { timeout: 20_000 }).toBeGreaterThan(1);
  const before = await lagSeconds(page, account, there);
  await expect.poll(() => lagSeconds(page, account, there), { timeout: 20_000 }).toBeGreaterThan(before + 0.5);
  expect(await arrival(page, there).getAttribute('data-state')).toBe('waiting');
  await screenshot(page, 'world-cut');

  await page.getByRole('button', { name: `Heal ${here} → ${there}` }).click();
  await waitUntilArrived(page, there);
  await expect.poll(() => lagSeconds(page, account, there), { timeout: 20_000 }).toBeLessThan(1);
});

test('a paused link holds an article back and loses nothing', async () => {
  const page = await world();
  await page.getByRole('button', { name: `Pause ${here} → ${there}` }).click();
  await page.locator(`.arc.paused[data-from="${here}"][data-to="${there}"]`).waitFor();
  await send(page);
  expect(await arrival(page, there).getAttribute('data-state')).toBe('waiting');
  await page.getByRole('button', { name: `Heal ${here} → ${there}` }).click();
  await waitUntilArrived(page, there);
});

test('an article takes at least the latency of its link', async () => {
  const page = await world();
  const latency = page.getByLabel(`Latency of ${here} → ${there} in milliseconds`);
  const before = await latency.inputValue();
  await latency.fill('700');
  await latency.press('Enter');
  await page.getByText('700 ms').first().waitFor();
  await send(page);
  await waitUntilArrived(page, there);
  const shown = (await arrival(page, there).locator('strong').textContent()) ?? '';
  const ms = Number.parseFloat(shown) * (shown.endsWith('ms') ? 1 : 1000);
  expect(ms).toBeGreaterThan(600);
  await latency.fill(before);
  await latency.press('Enter');
});

test('another region takes over the writes of an account and gives them back', async () => {
  const page = await world();
  const account = await homeAccount(page);
  const card = page.getByRole('region', { name: account, exact: true });
  await page.getByRole('button', { name: `Fail ${account} over to ${there}` }).click();
  await card.locator(`[data-region="${there}"]`).getByText('writes', { exact: true }).waitFor({ timeout: 30_000 });
  await page.getByText(`${there} now takes the writes of ${account}`).waitFor();
  await send(page);
  await waitUntilArrived(page, there);
  await screenshot(page, 'world-failed-over');
  await page.getByRole('button', { name: `Fail ${account} over to ${here}` }).click();
  await card.locator(`[data-region="${here}"]`).getByText('writes', { exact: true }).waitFor({ timeout: 30_000 });
});

test('a stopped region answers nobody and comes back with what it has missed', async () => {
  const page = await world();
  const bar = page.getByRole('list', { name: 'Regions' });
  await bar.getByRole('button', { name: `Stop ${there}` }).click();
  await bar.getByText('stopped', { exact: true }).waitFor();
  await send(page);
  await arrival(page, there).getByText('no answer').waitFor();
  await bar.getByRole('button', { name: `Start ${there}` }).click();
  await bar.getByRole('button', { name: `Stop ${there}` }).waitFor({ timeout: 30_000 });
  await waitUntilArrived(page, there);
});
