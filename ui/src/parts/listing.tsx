// A list that is read in one piece: what is read, what is empty, what failed, and that there is more.
import type { ComponentChildren } from "preact";
import type { Resource } from "../resource";
import { Empty, Loading, Trouble } from "./notice";

export interface Listed<T> {
  data: T[];
  cursor?: string;
}

interface ListingProps<T> {
  list: Resource<Listed<T>>;
  what: string;
  // The headings of the columns. Those that begin with # are of numbers.
  heads: string[];
  row: (item: T) => ComponentChildren;
  empty: ComponentChildren;
  // A command that prints all of the list.
  all?: string;
}

export function Listing<T>({ list, what, heads, row, empty, all }: ListingProps<T>) {
  const items = list.data.value?.data;
  return (
    <>
      {list.problem.value && <Trouble problem={list.problem.value} retry={list.refresh} />}
      {!items && !list.problem.value && <Loading what={what} />}
      {items?.length === 0 && <Empty title={`There are no ${what}`}>{empty}</Empty>}
      {items && items.length > 0 && (
        <table class="list">
          <thead><tr>{heads.map((h) => <th class={h.startsWith("#") ? "num" : ""}>{h ? h.replace("#", "") : <span class="hidden">Actions</span>}</th>)}</tr></thead>
          <tbody>{items.map(row)}</tbody>
        </table>
      )}
      {list.data.value?.cursor && all && <p class="quiet">The first {items?.length.toLocaleString("en")} are shown: <code>{all}</code> lists all.</p>}
    </>
  );
}
