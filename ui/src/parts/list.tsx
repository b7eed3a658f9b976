// What lists have around their rows.
import type { ComponentChildren } from "preact";
import type { List } from "../list";
import { href, go, page, search } from "../location";
import { Loading, Trouble } from "./notice";

// Rows shows the table of a list, why there is none, and what to do for more.
export function Rows<T>({ list, what, empty, children }: { list: List<T>; what: string; empty: ComponentChildren; children: ComponentChildren }) {
  const { first, rows, more, reading } = list;
  return (
    <>
      {first.problem.value && <Trouble problem={first.problem.value} retry={first.refresh} />}
      {first.data.value === null && !first.problem.value && <Loading what={what} />}
      {rows.length > 0 && children}
      {first.data.value && rows.length === 0 && (more ? <p class="quiet">None of the first ones match.</p> : empty)}
      {more && <p class="more"><button type="button" onClick={more} disabled={reading}>{reading ? "Reading …" : `More ${what}`}</button></p>}
    </>
  );
}

export interface Tab {
  name: string;
  title: string;
  badge?: string;
}

// Tabs are parts of a page: links, so that each has an address. The filter stays.
export function Tabs({ place, tabs, chosen, label }: { place: string; tabs: Tab[]; chosen: string; label: string }) {
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {tabs.map((t) => (
        <a role="tab" id={`tab-${t.name}`} aria-selected={t.name === chosen} aria-controls="tab-panel"
          href={href([place, t.name], Object.fromEntries(search.value))}>{t.title}{t.badge && <span class="badge">{t.badge}</span>}</a>
      ))}
    </div>
  );
}

// Filter is a form whose fields are in the address.
export function Filter({ children }: { children: ComponentChildren }) {
  const submit = (e: Event) => {
    e.preventDefault();
    const fields = Object.fromEntries([...new FormData(e.currentTarget as HTMLFormElement)].map(([k, v]) => [k, String(v).trim()]));
    go(href(page.value.segments, fields));
  };
  return <form class="fields" role="search" onSubmit={submit} onChange={(e) => e.currentTarget.requestSubmit()}>{children}<button type="submit">Filter</button></form>;
}

// param returns a field of the filter; empty if it is not set.
export function param(name: string): string {
  return search.value.get(name) ?? "";
}
