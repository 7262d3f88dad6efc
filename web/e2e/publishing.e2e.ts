import { expect, test } from 'vitest';
import { chooseRegion, follow, go, here, publish, signIn, there, visitor, waitUntilArrived } from './browser';
import { fresh, seedArticles } from './seed';

test('an article published here is seen to arrive there and can be read there', async () => {
  const { page, complaints } = await visitor();
  const title = fresh('Snow');
  await signIn(page, fresh('ann'));
  await publish(page, { title, category: 'weather', body: 'It has snowed.\nAll night.' });
  await waitUntilArrived(page, here);
  await waitUntilArrived(page, there);
  await page.getByRole('heading', { level: 1, name: 'Arrived everywhere' }).waitFor();
  await page.getByRole('link', { name: 'Read the article' }).click();
  await chooseRegion(page, there);
  await page.getByRole('heading', { level: 1, name: title }).waitFor();
  await page.getByText('It has snowed.\nAll night.').waitFor();
  expect(complaints).toEqual([]);
});

test('a follower in another region is told while looking, and is not told again of what was read', async () => {
  const [author, reader, title] = [fresh('ann'), fresh('bob'), fresh('Ice')];
  const { page: readers } = await visitor();
  await signIn(readers, reader);
  await chooseRegion(readers, there);
  await follow(readers, 'author', author);
  await go(readers, 'Feed');
  await readers.getByText('Live', { exact: true }).waitFor();

  const { page: authors } = await visitor();
  await signIn(authors, author);
  await publish(authors, { title, category: 'weather' });

  const row = readers.getByRole('listitem').filter({ hasText: title });
  await row.waitFor();
  await row.getByRole('button', { name: /^Mark/ }).click();
  await row.getByText('Read', { exact: true }).waitFor();
  await readers.reload();
  await row.getByText('Read', { exact: true }).waitFor();
});

test('a new follower is told of earlier articles only when that is asked for', async () => {
  const [author, category] = [fresh('ann'), fresh('old')];
  await seedArticles(author, category, 3);
  const { page } = await visitor();
  await signIn(page, fresh('bob'));
  await go(page, 'Following');
  await page.getByLabel('Follow by').selectOption('author');
  await page.getByLabel('Name of the author').fill(author);
  await page.getByLabel('Earlier articles').fill('2');
  await page.getByRole('button', { name: 'Follow', exact: true }).click();
  await page.getByText(`You follow author:${author}, with 2 earlier articles`).waitFor();
  await go(page, 'Feed');
  await page.getByRole('listitem').filter({ hasText: 'Number 3' }).waitFor();
  await page.getByRole('listitem').filter({ hasText: 'Number 2' }).waitFor();
  expect(await page.getByRole('listitem').filter({ hasText: 'Number 1' }).count()).toBe(0);
});

test('what the author retracts leaves the feeds of others', async () => {
  const [author, title] = [fresh('ann'), fresh('Mistake')];
  const { page: readers } = await visitor();
  await signIn(readers, fresh('bob'));
  await follow(readers, 'author', author);
  await go(readers, 'Feed');
  const { page: authors } = await visitor();
  await signIn(authors, author);
  await publish(authors, { title, category: 'weather' });
  const row = readers.getByRole('listitem').filter({ hasText: title });
  await row.waitFor();

  await authors.getByRole('link', { name: 'Read the article' }).click();
  await authors.getByRole('button', { name: 'Retract', exact: true }).click();
  await authors.getByRole('button', { name: 'Retract now' }).click();
  await authors.getByText('The author has retracted this article.').waitFor();
  await row.waitFor({ state: 'detached' });
});

test('an edit that comes second is refused and keeps its words', async () => {
  const { page: first } = await visitor();
  await signIn(first, fresh('ann'));
  await publish(first, { title: fresh('Draft'), category: 'weather' });
  await first.getByRole('link', { name: 'Read the article' }).click();
  await first.getByRole('link', { name: 'Edit' }).click();
  await first.getByLabel('Title').waitFor();
  const second = await first.context().newPage();
  await second.goto(first.url());

  await second.getByLabel('Title').fill('The second title');
  await first.getByLabel('Title').fill('The first title');
  await first.getByRole('button', { name: 'Save' }).click();
  await first.getByRole('heading', { level: 1, name: 'The first title' }).waitFor();
  await second.getByRole('button', { name: 'Save' }).click();
  await second.getByText('has changed since you opened it').waitFor();
  expect(await second.getByLabel('Title').inputValue()).toBe('The second title');

  await second.getByRole('button', { name: 'Keep mine and replace it' }).click();
  await second.getByText('has changed since you opened it').waitFor({ state: 'detached' });
  await second.getByRole('button', { name: 'Save' }).click();
  await second.getByRole('heading', { level: 1, name: 'The second title' }).waitFor();
});

test('an answer that is lost on its way does not make a second article', async () => {
  const { page } = await visitor();
  const [author, title] = [fresh('ann'), fresh('Once')];
  await signIn(page, author);
  let n_lost = 0;
  await page.route('**/v1/articles', async (route) => {
    if (route.request().method() !== 'POST' || n_lost > 0) return route.continue();
    n_lost++;
    await route.fetch();
    return route.abort();
  });
  await go(page, 'Publish');
  await page.getByLabel('Title').fill(title);
  await page.getByLabel('Category').fill('weather');
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByText('Sending it again never makes a second article').waitFor();
  await page.reload();
  await page.getByRole('button', { name: 'Publish', exact: true }).click();
  await page.getByRole('list', { name: 'Arrivals' }).waitFor();
  expect(n_lost).toBe(1);
  await page.goto(`${new URL(page.url()).origin}/#/browse?author=${author}`);
  await page.getByRole('main').getByRole('link', { name: title }).first().waitFor();
  expect(await page.getByRole('main').getByRole('link', { name: title }).count()).toBe(1);
});

test('reviews are counted, and a second one of the same user replaces the first', async () => {
  const { page } = await visitor();
  await signIn(page, fresh('ann'));
  await publish(page, { title: fresh('Rated'), category: 'weather' });
  await page.getByRole('link', { name: 'Read the article' }).click();
  await page.getByRole('radio', { name: '4 of 5' }).check({ force: true });
  await page.getByLabel('What do you think?').fill('Good.');
  await page.getByRole('button', { name: 'Send review' }).click();
  await page.getByRole('listitem').filter({ hasText: 'Good.' }).waitFor();
  await page.getByText('4.0', { exact: true }).waitFor();
  await page.getByRole('radio', { name: '2 of 5' }).check({ force: true });
  await page.getByLabel('What do you think?').fill('Not so good.');
  await page.getByRole('button', { name: 'Replace review' }).click();
  await page.getByText('2.0', { exact: true }).waitFor();
  await page.getByRole('listitem').filter({ hasText: 'Not so good.' }).waitFor();
  await page.getByText('1 review', { exact: true }).waitFor();
});

test('a long list is read page by page', async () => {
  const category = fresh('many');
  await seedArticles(fresh('ann'), category, 23);
  const { page } = await visitor();
  await go(page, 'Browse');
  await page.getByLabel('Browse by').selectOption('category');
  await page.getByLabel('Name of the category').fill(category);
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  const titles = page.getByRole('link', { name: /^Number \d+$/ });
  await titles.nth(19).waitFor();
  expect(await titles.count()).toBe(20);
  await page.getByRole('button', { name: 'Show more' }).click();
  await titles.nth(22).waitFor();
  expect(new Set(await titles.allTextContents()).size).toBe(23);
  expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0);
});

test('subscriptions are kept, moved to another region and removed', async () => {
  const { page } = await visitor();
  const author = fresh('ann');
  await signIn(page, fresh('bob'));
  await follow(page, 'author', author);
  const row = page.getByRole('main').getByRole('listitem').filter({ hasText: author });
  await chooseRegion(page, there);
  // The other region hears of it a little later, and the list is read when the view opens.
  await expect
    .poll(
      async () => {
        await go(page, 'Browse');
        await go(page, 'Following');
        await page
          .getByText(/You follow nothing yet|since/)
          .first()
          .waitFor();
        return row.count();
      },
      { timeout: 15_000 },
    )
    .toBe(1);
  await page.getByRole('button', { name: 'Move them here' }).click();
  await page.getByText(`author:${author} now belong to ${there}`).waitFor();
  await row.getByRole('button').click();
  await row.waitFor({ state: 'detached' });
});
