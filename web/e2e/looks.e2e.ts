import type { BrowserContextOptions, Page } from 'playwright-core';
import { expect, test } from 'vitest';
import {
  expectNoSidewaysScroll,
  follow,
  go,
  publish,
  screenshot,
  signIn,
  there,
  visitor,
  waitUntilArrived,
} from './browser';
import { fresh, hasWorld } from './seed';

const DESK: BrowserContextOptions = { viewport: { width: 1280, height: 900 } };
const PHONE: BrowserContextOptions = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };

/** A contrast below this is hard to read. */
const CONTRAST_MIN = 4.5;

test.each([
  ['desk-light', { ...DESK, colorScheme: 'light' }],
  ['desk-dark', { ...DESK, colorScheme: 'dark' }],
  ['phone-light', { ...PHONE, colorScheme: 'light' }],
  ['phone-dark', { ...PHONE, colorScheme: 'dark' }],
] as [string, BrowserContextOptions][])(
  'every view fits and can be read: %s',
  async (name, options) => {
    const { page, complaints } = await visitor(options);
    const category = fresh('weather');
    const look = async (view: string) => {
      await expectNoSidewaysScroll(page);
      await expectLegible(page);
      await screenshot(page, `${name}-${view}`);
    };
    await look('welcome');
    await signIn(page, fresh('ann'));
    await follow(page, 'category', category);
    await look('following');
    const title =
      'A title that is long enough to need more than one line on a small screen, and_one_word_without_any_place_to_break_it';
    await publish(page, { title, category, tags: 'ski, winter', body: 'It has snowed.\n\nAll night.' });
    await waitUntilArrived(page, there);
    await look('flight');
    await page.getByRole('link', { name: 'Read the article' }).click();
    await page.getByText('reviewed it yet').waitFor();
    await look('article');
    await go(page, 'Publish');
    await look('publish');
    await go(page, 'Feed');
    await page.getByRole('listitem').filter({ hasText: title }).waitFor();
    await look('feed');
    await page.evaluate((value) => (location.hash = `#/browse?category=${value}`), category);
    await page.getByRole('main').getByRole('link', { name: title }).waitFor();
    await look('browse');
    if (hasWorld) {
      await go(page, 'World');
      await page.locator('.plot canvas').first().waitFor();
      await look('world');
    }
    expect(complaints).toEqual([]);
  },
  120_000,
);

test.skipIf(!hasWorld)('nothing moves while a page fills', async () => {
  const { page } = await visitor();
  await signIn(page, fresh('ann'));
  await go(page, 'World');
  await page.getByRole('heading', { name: 'Links' }).waitFor();
  const shift = () =>
    page.evaluate(
      () =>
        new Promise<number>((resolve) => {
          let total = 0;
          const observer = new PerformanceObserver((list) => {
            for (const entry of list.getEntries() as unknown as { value: number; hadRecentInput: boolean }[])
              if (!entry.hadRecentInput) total += entry.value;
          });
          observer.observe({ type: 'layout-shift', buffered: true });
          requestAnimationFrame(() => requestAnimationFrame(() => resolve(total)));
        }),
    );
  await page.locator('.plot canvas').nth(2).waitFor();
  expect(await shift()).toBeLessThan(0.1);
});

test('the header keeps its parts apart, however long the name', async () => {
  const { page } = await visitor(PHONE);
  await signIn(page, fresh('a-rather-long-name-for-a-small-screen'));
  const region = (await page.getByLabel('Region', { exact: true }).boundingBox())!;
  const user = (await page.getByRole('banner').getByRole('button').boundingBox())!;
  expect(region.x + region.width).toBeLessThanOrEqual(user.x);
  expect(Math.abs(region.y - user.y)).toBeLessThan(4);
  await expectNoSidewaysScroll(page);
  const lines = await page
    .getByRole('navigation')
    .getByRole('link')
    .evaluateAll((links) =>
      links.map((link) => {
        const words = document.createRange();
        words.selectNodeContents(link.firstChild!);
        return words.getClientRects().length;
      }),
    );
  expect(lines).toEqual(lines.map(() => 1));
});

test('the colours follow the system', async () => {
  const { page } = await visitor({ colorScheme: 'light' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.emulateMedia({ colorScheme: 'dark' });
  expect(await background()).not.toBe(light);
});

/** Checks every piece of text against the background it stands on. */
async function expectLegible(page: Page): Promise<void> {
  const poor = await page.evaluate((least) => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true })!;
    const channels = (colour: string): number[] => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const luminance = (colour: string): number => {
      const [r, g, b] = channels(colour)
        .slice(0, 3)
        .map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)) as [number, number, number];
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element: Element): string => {
      for (let at: Element | null = element; at; at = at.parentElement) {
        const colour = getComputedStyle(at).backgroundColor;
        if (channels(colour)[3] === 255) return colour;
      }
      return 'white';
    };
    const problems: string[] = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const element = text.parentElement!;
      if (
        !text.textContent?.trim() ||
        !element.checkVisibility() ||
        element.closest(':disabled, [aria-hidden=true], .visually-hidden')
      )
        continue;
      const [one, other] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
      const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (contrast < least) problems.push(`${contrast.toFixed(2)}: ${text.textContent.trim().slice(0, 40)}`);
    }
    return problems;
  }, CONTRAST_MIN);
  expect(poor).toEqual([]);
}
