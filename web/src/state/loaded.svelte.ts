// Things that are read from a service: one value, or a list that grows by pages. An answer that was overtaken by a newer
// question is dropped.
import { explain } from '../lib/api';
import type { Page } from '../lib/types';

export class Loaded<Value> {
  value = $state.raw<Value | null>(null);
  problem = $state<unknown>(null);
  loading = $state(false);
  private question = 0;

  /** What is shown stays until the answer is there. */
  async load(read: () => Promise<Value>): Promise<void> {
    const question = ++this.question;
    this.loading = true;
    try {
      const value = await read();
      if (question === this.question) [this.value, this.problem] = [value, null];
    } catch (problem) {
      if (question === this.question) this.problem = problem;
    } finally {
      if (question === this.question) this.loading = false;
    }
  }

  clear(): void {
    this.question++;
    [this.value, this.problem, this.loading] = [null, null, false];
  }

  get message(): string | null {
    return this.problem === null ? null : explain(this.problem);
  }
}

export class PagedList<Item extends { id: string }> {
  items = $state.raw<Item[]>([]);
  continuation = $state<string | null>(null);
  missing = $state.raw<string[]>([]);
  problem = $state<string | null>(null);
  loading = $state(false);
  /** A first answer has come, so that an empty list means that there is nothing. */
  known = $state(false);
  private question = 0;
  private read: ((continuation?: string) => Promise<Page<Item>>) | null = null;

  /** Starts over with another list. */
  async open(read: (continuation?: string) => Promise<Page<Item>>): Promise<void> {
    this.read = read;
    [this.items, this.continuation, this.known, this.missing] = [[], null, false, []];
    await this.fetch(undefined);
  }

  /** Reads the first page again and shows it in place of everything. */
  async reload(): Promise<void> {
    await this.fetch(undefined);
  }

  async more(): Promise<void> {
    if (this.continuation !== null) await this.fetch(this.continuation);
  }

  private async fetch(continuation: string | undefined): Promise<void> {
    if (this.read === null) return;
    const question = ++this.question;
    this.loading = true;
    try {
      const page = await this.read(continuation);
      if (question !== this.question) return;
      const before = continuation === undefined ? [] : this.items;
      const listed = new Set(before.map((item) => item.id));
      this.items = [...before, ...page.items.filter((item) => !listed.has(item.id))];
      [this.continuation, this.missing] = [page.continuation ?? null, page.missing];
      [this.known, this.problem] = [true, null];
    } catch (problem) {
      if (question === this.question) this.problem = explain(problem);
    } finally {
      if (question === this.question) this.loading = false;
    }
  }
}
