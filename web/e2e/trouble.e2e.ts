// What the page shows when services answer late, in part or not at all. The answers are bent on their way to the page.
import { expect, test } from 'vitest';
import { chooseRegion, follow, go, publish, services, signIn, there, visitor } from './browser';
import { fresh } from './seed';

test('an account that does not answer is shown as catching up until it does', async () => {
  const { page } = await visitor();
  let late = true;
  await page.route('**/v1/notifications?*', async (route) => {
    const response = await route.fetch();
    const body = (await response.json()) as object;
    await route.fulfill({ response, json: late ? { ...body, missing: ['asia'], continuation: 'later' } : body });
  });
  await signIn(page, fresh('ann'));
  await page.getByText('Catching up with asia').waitFor();
  late = false;
  await page.getByText('Catching up with asia').waitFor({ state: 'detached' });
});

test('a stream that ends is opened again, and nothing is lost in between', async () => {
  const { page } = await visitor();
  const [author, title] = [fresh('ann'), fresh('Unheard')];
  let heard = false;
  await page.route('**/v1/notifications/stream*', async (route) => {
    if (heard) return route.continue();
    heard = true;
    const body = ': listening\n\n';
    return route.fulfill({ contentType: 'text/event-stream', headers: { 'Access-Control-Allow-Origin': '*' }, body });
  });
  await signIn(page, author);
  await follow(page, 'author', author);
  await publish(page, { title, category: 'weather' });
  await go(page, 'Feed');
  await page.getByRole('listitem').filter({ hasText: title }).waitFor();
  await page.getByText('Live', { exact: true }).waitFor();
});

test('a platform without a world has no world view', async () => {
  const { page } = await visitor();
  await page.route('**/v1/world', (route) =>
    route.fulfill({ status: 404, json: { error: { code: 'not-found', message: 'no such path', requestId: 'r' } } }),
  );
  await page.reload();
  await page.getByRole('navigation').getByRole('link', { name: 'Following' }).waitFor();
  await page.evaluate(() => (location.hash = '#/world'));
  await page.getByText('runs without a world').waitFor();
  expect(await page.getByRole('navigation').getByRole('link', { name: 'World' }).count()).toBe(0);
});

test('a region that cannot be reached says so and leaves the way back open', async () => {
  const { page } = await visitor();
  const category = fresh('weather');
  await signIn(page, fresh('ann'));
  await publish(page, { title: fresh('Here'), category });
  const elsewhere = services.find(({ name }) => name === there)!;
  await page.route(`${elsewhere.url}**`, (route) => route.abort());
  await page.evaluate((value) => (location.hash = `#/browse?category=${value}`), category);
  await page.getByRole('main').getByRole('link', { name: /^Here/ }).waitFor();
  await chooseRegion(page, there);
  await page.getByText('the service cannot be reached').first().waitFor();
  await chooseRegion(page, services[0]!.name);
  await page.getByRole('main').getByRole('link', { name: /^Here/ }).waitFor();
});

test('region and user are kept for the next visit', async () => {
  const { page } = await visitor();
  const name = fresh('ann');
  await signIn(page, name);
  await chooseRegion(page, there);
  await page.reload();
  await page.getByRole('banner').getByRole('button', { name }).waitFor();
  expect(await page.getByLabel('Region', { exact: true }).inputValue()).toBe(there);
});
