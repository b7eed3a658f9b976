// Lists with a cursor: all pages that are shown are read again while they are looked at, so that no row is old and none is
// lost between two pages.
import { useSignal } from "@preact/signals";
import { useResource, type Keep, type Resource } from "./resource";

export interface Page<T> {
  data: T[];
  cursor?: string;
}

export interface List<T> {
  first: Resource<Page<T>>;
  rows: T[];
  // Reads the next page; null if there is none. A page may be empty before the last one.
  more: (() => void) | null;
  reading: boolean;
  refresh: () => void;
}

// useList reads a list whenever one of the inputs changes, and again as keep says. More pages are read more rarely.
export function useList<T>(
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<T>>, inputs: unknown[], keyOf: (row: T) => string,
  keep: Keep,
): List<T> {
  const scope = inputs.join("\n");
  const wanted = useSignal({ of: scope, pages: 1 });
  const pages = wanted.value.of === scope ? wanted.value.pages : 1;
  const first = useResource(async (signal) => {
    const rows = new Map<string, T>();
    let cursor: string | undefined;
    let n = 0;
    do {
      const page = await read(cursor, signal);
      for (const row of page.data) rows.set(keyOf(row), row);
      cursor = page.cursor;
    } while (++n < pages && cursor);
    return { data: [...rows.values()], cursor, pages: n };
  }, inputs, { ...keep, weight: pages, version: pages === 1 ? keep.version : `${pages} pages` });
  const shown = first.data.value;
  const more = () => {
    if (!shown) return;
    wanted.value = { of: scope, pages: shown.pages + 1 };
    first.refresh();
  };
  return {
    first: first as Resource<Page<T>>, rows: shown?.data ?? [], more: shown?.cursor ? more : null,
    reading: first.loading.value && shown !== null && shown.pages < pages, refresh: first.refresh,
  };
}
