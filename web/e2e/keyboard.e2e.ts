import type { Page } from 'playwright-core';
import { afterEach, expect, test } from 'vitest';
import { here, there, visitor, waitUntilArrived } from './browser';
import { fresh, hasWorld, restoreWorld } from './seed';

const N_TABS_MAX = 80;

afterEach(restoreWorld);

/** Presses Tab until the focus is on what `wanted` names; every stop on the way must be visible. */
async function tabTo(page: Page, wanted: string): Promise<void> {
  for (let n = 0; n < N_TABS_MAX; n++) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      // After the last stop the focus leaves the page, and comes back to the first one.
      if (element === document.body) return null;
      const labels =
        element instanceof HTMLInputElement || element instanceof HTMLTextAreaElement ? element.labels : null;
      const shown = element.matches('input[type=radio]') ? (element.closest('label') ?? element) : element;
      const name = element.getAttribute('aria-label') ?? labels?.[0]?.textContent ?? element.textContent ?? '';
      return { name: name.trim(), outline: getComputedStyle(shown).outlineStyle };
    });
    if (stop === null) continue;
    expect(stop.outline, `focus on “${stop.name}” is visible`).not.toBe('none');
    if (stop.name.startsWith(wanted)) return;
  }
  throw new Error(`no way to “${wanted}” with ${N_TABS_MAX} tabs`);
}

async function pressOn(page: Page, wanted: string, key = 'Enter'): Promise<void> {
  await tabTo(page, wanted);
  await page.keyboard.press(key);
}

async function typeInto(page: Page, field: string, text: string): Promise<void> {
  await tabTo(page, field);
  await page.keyboard.type(text);
}

test.skipIf(!hasWorld)('signing in, publishing, reviewing and cutting a link need no mouse', async () => {
  const { page } = await visitor();
  const name = fresh('kim');
  await pressOn(page, 'Sign in');
  await page.keyboard.type(name);
  await page.keyboard.press('Enter');
  await page.getByRole('banner').getByRole('button', { name }).waitFor();

  await pressOn(page, 'Publish');
  await page.getByRole('heading', { level: 1, name: 'Publish' }).waitFor();
  await typeInto(page, 'Title', 'Without a mouse');
  await typeInto(page, 'Category', 'keys');
  await typeInto(page, 'Text', 'Every key counts.');
  await pressOn(page, 'Publish', 'Space');
  await waitUntilArrived(page, there);

  await pressOn(page, 'Read the article');
  await page.getByRole('heading', { level: 1, name: 'Without a mouse' }).waitFor();
  await tabTo(page, '☆');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('ArrowRight');
  await typeInto(page, 'What do you think?', 'By keyboard.');
  await pressOn(page, 'Send review');
  await page.getByRole('listitem').filter({ hasText: 'By keyboard.' }).waitFor();

  await page.evaluate(() => (location.hash = '#/world'));
  await page.getByRole('heading', { level: 1, name: 'World' }).waitFor();
  await pressOn(page, `Cut ${here} → ${there}`, 'Space');
  await page.locator(`.arc.cut[data-from="${here}"][data-to="${there}"]`).waitFor();
  await pressOn(page, `Heal ${here} → ${there}`, 'Space');
  await page.locator(`.arc.open[data-from="${here}"][data-to="${there}"]`).waitFor();
});

test('a new view takes the focus to its heading, and the dialog gives it back', async () => {
  const { page } = await visitor();
  await pressOn(page, 'Browse');
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim());
  await expect.poll(focused).toBe('Browse');
  await page.getByRole('button', { name: 'Sign in', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await expect.poll(focused).toBe('Sign in');
});
