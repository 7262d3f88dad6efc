import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { follow, go, here, publish, services, signIn, visitor, waitUntilArrived } from './browser';
import { fresh, hasWorld } from './seed';

const ATTACK = `<img src=x onerror="window.ran=1"><script>window.ran=1</script><b>bold</b>`;

/** The attack is there to be read, and nothing of it has become an element or has run. */
async function expectHarmless(page: Page): Promise<void> {
  await page.getByRole('main').getByText(ATTACK).first().waitFor();
  const found = await page.evaluate(() => ({
    ran: (window as unknown as { ran?: number }).ran,
    elements: document.querySelectorAll('main img, main script, main b, header b, header img').length,
  }));
  expect(found).toEqual({ ran: undefined, elements: 0 });
}

test('markup in names, titles, texts, categories and reviews is shown as text', async () => {
  const { page, complaints } = await visitor();
  const author = `${ATTACK} ${fresh('eve')}`;
  const category = `${ATTACK} ${fresh('category')}`;
  await signIn(page, author);
  await follow(page, 'category', category);
  await expectHarmless(page);
  await publish(page, { title: ATTACK, category, tags: ATTACK, body: ATTACK });
  await waitUntilArrived(page, here);
  await page.getByRole('link', { name: 'Read the article' }).click();
  await page.getByRole('radio', { name: '1 of 5' }).check({ force: true });
  await page.getByLabel('What do you think?').fill(ATTACK);
  await page.getByRole('button', { name: 'Send review' }).click();
  await page.getByRole('listitem').filter({ hasText: ATTACK }).first().waitFor();
  await expectHarmless(page);
  await page.getByRole('link', { name: category }).click();
  await expectHarmless(page);
  await go(page, 'Feed');
  await expectHarmless(page);
  expect(complaints).toEqual([]);
});

test.each([
  '#/articles/%3Cimg src=x onerror=window.ran=1%3E',
  '#/browse?tag=%3Cscript%3Ewindow.ran=1%3C/script%3E',
  '#javascript:window.ran=1',
])('the address %s runs nothing', async (hash) => {
  const { page, complaints } = await visitor();
  await page.goto(services[0]!.url + hash);
  await page.getByRole('heading', { level: 1 }).waitFor();
  expect(await page.evaluate(() => (window as unknown as { ran?: number }).ran)).toBeUndefined();
  expect(complaints).toEqual([]);
});

test('the page allows no inline script and no evaluation of text', async () => {
  const { page } = await visitor();
  const outcome = await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.ran = 1';
    document.body.append(script);
    const inline = (window as unknown as { ran?: number }).ran === undefined ? 'refused' : 'ran';
    // Later, because what the test itself sends is exempt from the policy while it runs.
    return new Promise<string[]>((resolve) =>
      setTimeout(() => {
        try {
          new Function('return 1')();
          resolve([inline, 'ran']);
        } catch {
          resolve([inline, 'refused']);
        }
      }),
    );
  });
  expect(outcome).toEqual(['refused', 'refused']);
});

test('nothing is fetched from anywhere but the services', async () => {
  const { page } = await visitor();
  const origins = new Set<string>();
  page.on('request', (request) => origins.add(new URL(request.url()).origin));
  await page.reload();
  await signIn(page, fresh('ann'));
  if (hasWorld) {
    await go(page, 'World');
    await page.getByRole('heading', { name: 'Links' }).waitFor();
  }
  const known = services.map(({ url }) => new URL(url).origin);
  expect([...origins].filter((origin) => !known.includes(origin))).toEqual([]);
});
