// A browser per test file, and what a person does with it. `CHROMIUM` names the browser; Debian's is the default.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from 'playwright-core';
import { afterAll, afterEach, expect, inject } from 'vitest';

/** Root may not have a sandbox; and nothing but this machine has an address, so that nobody else can be called. */
const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-domain-reliability',
  '--disable-sync',
  '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1',
];
const ARTEFACTS = join(import.meta.dirname, 'artefacts');

export const services = inject('services');
export const [here, , there] = services.map((service) => service.name) as [string, string, string];

let browser: Browser | null = null;
const contexts: BrowserContext[] = [];

afterEach(async () => {
  // A page that nobody looks at goes on asking its services.
  for (const context of contexts.splice(0)) await context.close();
});

afterAll(async () => {
  await browser?.close();
});

/** A visitor with an empty profile, at the first region's service. Policy violations and errors of the page are collected. */
export async function visitor(options: BrowserContextOptions = {}): Promise<{ page: Page; complaints: string[] }> {
  // Started with a temporary directory for its profile, which goes away with it; visitors share nothing but the process.
  browser ??= await chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: FLAGS });
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  contexts.push(context);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => {
    if (/Content Security Policy|Uncaught/.test(message.text())) complaints.push(message.text());
  });
  await page.goto(services[0]!.url);
  await page.getByRole('navigation').getByRole('link', { name: 'Feed' }).waitFor();
  return { page, complaints };
}

export async function signIn(page: Page, name: string): Promise<void> {
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill(name);
  await dialog.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('banner').getByRole('button', { name }).waitFor();
}

export async function go(page: Page, view: string): Promise<void> {
  await page.getByRole('navigation').getByRole('link', { name: view }).click();
  await page.getByRole('heading', { level: 1, name: view }).waitFor();
}

export async function chooseRegion(page: Page, region: string): Promise<void> {
  await page.getByLabel('Region', { exact: true }).selectOption(region);
}

export async function follow(page: Page, by: string, name: string): Promise<void> {
  await go(page, 'Following');
  await page.getByLabel('Follow by').selectOption(by);
  await page.getByLabel(`Name of the ${by}`).fill(name);
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.getByRole('listitem').filter({ hasText: name }).first().waitFor();
}

export interface Text {
  title: string;
  category: string;
  tags?: string;
  body?: string;
}

/** Publishes and stays with the article's flight. */
export async function publish(page: Page, text: Text): Promise<void> {
  await go(page, 'Publish');
  await page.getByLabel('Title').fill(text.title);
  await page.getByLabel('Category').fill(text.category);
  await page.getByLabel('Tags').fill(text.tags ?? '');
  await page.getByLabel('Text').fill(text.body ?? 'It says so.');
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByRole('list', { name: 'Arrivals' }).waitFor();
}

/** The row of the region in the list of arrivals. */
export function arrival(page: Page, region: string) {
  return page.getByRole('list', { name: 'Arrivals' }).locator(`[data-region="${region}"]`);
}

export async function waitUntilArrived(page: Page, region: string): Promise<void> {
  await page
    .getByRole('list', { name: 'Arrivals' })
    .locator(`[data-region="${region}"][data-state="arrived"]`)
    .waitFor({ timeout: 30_000 });
}

export async function screenshot(page: Page, name: string): Promise<void> {
  mkdirSync(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `${name}.png`), fullPage: true });
}

/** Nothing may be wider than the window. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const [content, window] = (await page.evaluate(
    'const root = document.scrollingElement; [root.scrollWidth, root.clientWidth]',
  )) as [number, number];
  expect(content).toBeLessThanOrEqual(window);
}
