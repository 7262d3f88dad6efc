// The draft of each user's next article, kept by the browser so that neither its text nor its key is lost.
import { ApiError, randomText } from '../lib/api';
import {
  asAnother,
  attempted,
  concluded,
  draftName,
  newDraft,
  restoreDraft,
  type Draft,
  type Outcome,
} from '../lib/draft';
import type { Publishing } from '../lib/publishing';
import type { Article, ArticleDraft } from '../lib/types';
import { session } from './session.svelte';
import { recall, remember } from './storage';

class DraftState {
  /** What was written since the page was opened, by user. Storage may be forbidden. */
  private written = $state.raw<ReadonlyMap<string | null, Draft>>(new Map());
  draft = $derived(this.written.get(session.user) ?? stored(session.user));

  write(text: ArticleDraft): void {
    this.keep(session.user, { ...this.draft, ...text });
  }

  /** Publishes under the draft's key. A failure that leaves the outcome open keeps key and region. */
  async publish(service: Publishing, region: string): Promise<Article> {
    // Whoever is signed in when the answer comes may be somebody else.
    const { user } = session;
    const before = this.draft;
    const { category, tags, title, body } = before;
    this.keep(user, attempted(before, region));
    try {
      const article = await service.publish({ category, tags, title, body }, before.key);
      this.keep(user, concluded(before, region, 'published', randomText()));
      return article;
    } catch (problem) {
      this.keep(user, concluded(before, region, outcomeOf(problem), randomText()));
      throw problem;
    }
  }

  startAnother(): void {
    this.keep(session.user, asAnother(this.draft, randomText()));
  }

  private keep(user: string | null, draft: Draft): void {
    this.written = new Map(this.written).set(user, draft);
    remember(draftName(user), JSON.stringify(draft));
  }
}

function stored(user: string | null): Draft {
  return restoreDraft(recall(draftName(user))) ?? newDraft(randomText());
}

/** 409 tells that an earlier attempt did succeed, with other words: the key stays taken. */
function outcomeOf(problem: unknown): Outcome {
  return problem instanceof ApiError && problem.refused && problem.status !== 409 ? 'refused' : 'unknown';
}

export const draftState = new DraftState();
