// Which parts of a long list are needed to show a part of it. Positions count from 0.

export interface Range {
  first: number;
  end: number; // exclusive
}

// visibleRange returns the rows that a viewport shows, and some around them.
export function visibleRange(scrollTop: number, height: number, rowHeight: number, count: number, around: number): Range {
  const first = Math.floor(scrollTop / rowHeight) - around;
  const end = Math.ceil((scrollTop + height) / rowHeight) + around;
  return { first: Math.max(0, Math.min(first, count)), end: Math.max(0, Math.min(end, count)) };
}

// pagesOf returns the numbers of the pages that have the rows of a range.
export function pagesOf(r: Range, size: number): number[] {
  const pages: number[] = [];
  for (let page = Math.floor(r.first / size); page * size < r.end; page++) pages.push(page);
  return pages;
}

// Recent keeps the pages that were used last.
export class Recent<T> {
  private pages = new Map<number, T>();
  constructor(private limit: number) {}

  get(page: number): T | undefined {
    const found = this.pages.get(page);
    if (found !== undefined) this.put(page, found);
    return found;
  }

  put(page: number, value: T): void {
    this.pages.delete(page);
    this.pages.set(page, value);
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= this.limit) break;
      this.pages.delete(oldest);
    }
  }

  delete(page: number): void {
    this.pages.delete(page);
  }

  get size(): number {
    return this.pages.size;
  }
}
