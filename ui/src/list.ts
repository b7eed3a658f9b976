// Lists with a cursor: the first page is read again while it is looked at, what was read below it stays.
import { useSignal } from "@preact/signals";
import { useResource, type Resource } from "./resource";

export interface Page<T> {
  data: T[];
  cursor?: string;
}

export interface List<T> {
  first: Resource<Page<T>>;
  rows: T[];
  // Reads the next page; null if there is none. A page may be empty before the last one.
  more: (() => Promise<void>) | null;
  reading: boolean;
  // Reads the list anew.
  refresh: () => void;
}

const pollEvery = 5000;

// useList reads a list whenever one of the inputs changes, and while the page is visible.
export function useList<T>(read: (cursor: string | undefined, signal?: AbortSignal) => Promise<Page<T>>, inputs: unknown[], keyOf: (row: T) => string): List<T> {
  const scope = inputs.join("\n");
  const below = useSignal<{ of: string; pages: Page<T>[] }>({ of: "", pages: [] });
  const reading = useSignal(false);
  const first = useResource((signal) => read(undefined, signal), inputs, pollEvery);
  const pages = below.value.of === scope ? below.value.pages : [];
  const cursor = (pages.at(-1) ?? first.data.value)?.cursor;
  const rows = new Map([...(first.data.value?.data ?? []), ...pages.flatMap((p) => p.data)].map((row) => [keyOf(row), row]));
  const more = async () => {
    if (reading.value) return;
    reading.value = true;
    try {
      below.value = { of: scope, pages: [...pages, await read(cursor)] };
    } catch {
      first.refresh(); // shows what is wrong
    }
    reading.value = false;
  };
  return {
    first, rows: [...rows.values()], more: cursor ? more : null, reading: reading.value,
    refresh: () => {
      below.value = { of: "", pages: [] };
      first.refresh();
    },
  };
}
