// The draft of the next article, kept by the browser so that neither its text nor its key is lost.
import { ApiError, randomText } from '../lib/api';
import { asAnother, attempted, concluded, newDraft, restoreDraft, type Draft, type Outcome } from '../lib/draft';
import type { Publishing } from '../lib/publishing';
import type { Article, ArticleDraft } from '../lib/types';
import { recall, remember } from './storage';

class DraftState {
  draft = $state.raw<Draft>(restoreDraft(recall('draft')) ?? newDraft(randomText()));

  write(text: ArticleDraft): void {
    this.keep({ ...this.draft, ...text });
  }

  /** Publishes under the draft's key. A failure that leaves the outcome open keeps key and region. */
  async publish(service: Publishing, region: string): Promise<Article> {
    const before = this.draft;
    const { category, tags, title, body } = before;
    this.keep(attempted(before, region));
    try {
      const article = await service.publish({ category, tags, title, body }, before.key);
      this.keep(concluded(before, region, 'published', randomText()));
      return article;
    } catch (problem) {
      this.keep(concluded(before, region, outcomeOf(problem), randomText()));
      throw problem;
    }
  }

  startAnother(): void {
    this.keep(asAnother(this.draft, randomText()));
  }

  private keep(draft: Draft): void {
    this.draft = draft;
    remember('draft', JSON.stringify(draft));
  }
}

/** 409 tells that an earlier attempt did succeed, with other words: the key stays taken. */
function outcomeOf(problem: unknown): Outcome {
  return problem instanceof ApiError && problem.refused && problem.status !== 409 ? 'refused' : 'unknown';
}

export const draftState = new DraftState();
