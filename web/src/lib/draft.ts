// A draft and its idempotency key.
//
// The invariant: as long as an attempt may have succeeded, the same text goes out under the same key to the same region,
// so that one draft never becomes two articles. A key is given up only on success, or when the user says that another article
// is wanted.
import type { ArticleDraft } from './types';

export interface Draft extends ArticleDraft {
  key: string;
  /** The region that was asked and whose answer is not known; null while nothing is open. */
  openIn: string | null;
}

export type Outcome = 'published' | 'refused' | 'unknown';

export function newDraft(key: string): Draft {
  return { category: '', tags: [], title: '', body: '', key, openIn: null };
}

/** To be stored before the request leaves: a page that dies meanwhile must find the key again. */
export function attempted(draft: Draft, region: string): Draft {
  return { ...draft, openIn: region };
}

/** What to keep after an attempt in `region`, given the draft `before` it. A refusal says nothing about earlier attempts. */
export function concluded(before: Draft, region: string, outcome: Outcome, nextKey: string): Draft {
  switch (outcome) {
    case 'published':
      return newDraft(nextKey);
    case 'refused':
      return before;
    case 'unknown':
      return attempted(before, region);
  }
}

/** The region whose answer must be had first, when it is not the one chosen now. */
export function mustFinishIn(draft: Draft, region: string): string | null {
  return draft.openIn !== null && draft.openIn !== region ? draft.openIn : null;
}

/** The user wants another article, whatever became of the open attempt. */
export function asAnother(draft: Draft, nextKey: string): Draft {
  return { ...draft, key: nextKey, openIn: null };
}

/** Under which name a user's draft is stored: what one person has written is not shown to the next one on the same machine. */
export function draftName(user: string | null): string {
  return user === null ? 'draft' : `draft.${user}`;
}

/** What storage gave back, or null if that is no draft. */
export function restoreDraft(text: string | null): Draft | null {
  try {
    const value = JSON.parse(text ?? 'null') as Partial<Draft> | null;
    if (value === null || typeof value !== 'object') return null;
    const { key, title, body, category, tags, openIn } = value;
    if (!key || [key, title, body, category].some((part) => typeof part !== 'string')) return null;
    if (!Array.isArray(tags) || tags.some((tag) => typeof tag !== 'string')) return null;
    return { ...(value as Draft), openIn: typeof openIn === 'string' ? openIn : null };
  } catch {
    return null;
  }
}

/** `a, b,,a` means the tags `a` and `b`. */
export function parseTags(text: string): string[] {
  return [...new Set(text.split(',').map((tag) => tag.trim()))].filter((tag) => tag !== '');
}
