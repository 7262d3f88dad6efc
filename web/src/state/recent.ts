// Articles as their account last answered for them. A region's replica may still show what they were before: what the user has
// just changed must not seem to change back.
import type { Article } from '../lib/types';

const N_KEPT = 20;
const known = new Map<string, Article>();

/** To be told of every answer to a change. */
export function remember(article: Article): void {
  known.delete(article.id);
  known.set(article.id, article);
  const oldest = known.keys().next();
  if (known.size > N_KEPT && !oldest.done) known.delete(oldest.value);
}

/** The later of what was read and what is known. */
export function latest(read: Article): Article {
  const remembered = known.get(read.id);
  return remembered !== undefined && remembered.revision > read.revision ? remembered : read;
}
