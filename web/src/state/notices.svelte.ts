// Short messages about what has just happened, read out by screen readers, gone after a while.

export interface Notice {
  id: number;
  kind: 'done' | 'problem';
  text: string;
}

const SHOWN_MS = 7000;
const N_MAX = 4;

class Notices {
  list = $state.raw<Notice[]>([]);
  private n = 0;

  done(text: string): void {
    this.show('done', text);
  }

  problem(text: string): void {
    this.show('problem', text);
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }

  private show(kind: Notice['kind'], text: string): void {
    const id = ++this.n;
    this.list = [...this.list, { id, kind, text }].slice(-N_MAX);
    setTimeout(() => this.dismiss(id), SHOWN_MS);
  }
}

export const notices = new Notices();
