import { describe, expect, test } from 'vitest';
import { asAnother, attempted, concluded, draftName, mustFinishIn, newDraft, parseTags, restoreDraft } from './draft';

const draft = { ...newDraft('key-1'), title: 'Snow', category: 'sports' };

describe('the key of a draft', () => {
  test('survives an attempt whose outcome is not known', () => {
    expect(concluded(draft, 'West US', 'unknown', 'key-2')).toMatchObject({
      key: 'key-1',
      title: 'Snow',
      openIn: 'West US',
    });
  });

  test('is given up with the text when the article is published', () => {
    expect(concluded(draft, 'West US', 'published', 'key-2')).toEqual(newDraft('key-2'));
  });

  test('and its region are free again after a refusal of a first attempt', () => {
    expect(concluded(draft, 'West US', 'refused', 'key-2')).toEqual(draft);
  });

  test('stays bound when a repetition is refused, because the first attempt may have succeeded', () => {
    const open = attempted(draft, 'West US');
    expect(concluded(open, 'West US', 'refused', 'key-2')).toEqual(open);
  });

  test('survives an edit of the text', () => {
    expect({ ...attempted(draft, 'West US'), title: 'Ice' }.key).toBe('key-1');
  });

  test('changes when the user wants another article', () => {
    expect(asAnother(attempted(draft, 'West US'), 'key-2')).toMatchObject({
      key: 'key-2',
      openIn: null,
      title: 'Snow',
    });
  });
});

describe('an open attempt', () => {
  test('must be finished in its own region', () => {
    expect(mustFinishIn(attempted(draft, 'West US'), 'North Europe')).toBe('West US');
    expect(mustFinishIn(attempted(draft, 'West US'), 'West US')).toBeNull();
    expect(mustFinishIn(draft, 'North Europe')).toBeNull();
  });

  test('is found again after the page has died', () => {
    const open = attempted(draft, 'West US');
    expect(restoreDraft(JSON.stringify(open))).toEqual(open);
  });
});

test('drafts of two users have two names', () => {
  expect(new Set([draftName('ann'), draftName('bob'), draftName(null)]).size).toBe(3);
});

test.each([
  [null],
  ['{'],
  ['null'],
  ['7'],
  ['{"key":"k"}'],
  ['{"key":"","title":"","body":"","category":"","tags":[]}'],
])('storage holding %j is no draft', (text) => expect(restoreDraft(text)).toBeNull());

test.each([
  ['', []],
  [' a , b,, a', ['a', 'b']],
  ['snow and ice', ['snow and ice']],
])('%j means the tags %j', (text, tags) => expect(parseTags(text)).toEqual(tags));
