// The palette: what one looks for, and where one wants to go.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { call } from "../api";
import type { Found } from "../api.gen";
import { formatFilter, parseFilter, runIdIn } from "../lib/filter";
import { filterOf, isSearched, matching, sentenceOf, step, type Item } from "../lib/palette";
import { go, href, project } from "../location";
import { may } from "../session";
import { paletteOpen } from "../shortcuts";
import { useModal } from "./dialog";
import { listsOf, placesOf } from "./frame";

// asked returns what a text says: the ID of a run, or a filter of runs.
function asked(text: string): Item[] {
  const id = runIdIn(text);
  if (id) return [{ kind: "run", name: id, open: () => go(href(["runs", id])) }];
  const { filter, problem } = parseFilter(text);
  const q = formatFilter(filter);
  return problem || q === "" || !may("metadata") ? [] : [{ kind: "runs", name: q, open: () => go(href(["runs"], { q })) }];
}

// fixed returns the pages, the lists of runs, and what the buttons of this page do.
function fixed(): Item[] {
  const buttons = [...document.querySelectorAll<HTMLButtonElement>("#content .page-head button, #content .actions button, #content .toolbar > button")]
    .filter((b) => !b.disabled && b.innerText.trim() !== "" && b.checkVisibility());
  return [
    ...buttons.map((b) => ({ kind: "action", name: b.innerText.trim(), open: () => b.click() })),
    ...placesOf().map((p) => ({ kind: "page", name: p.name, detail: p.key, open: () => go(href([p.segment])) })),
    ...listsOf().map((l) => ({ kind: "runs", name: l.name, detail: l.filter, open: () => go(href(["runs"], { q: l.filter })) })),
  ];
}

// searchAfter is how long a text stays before it is searched, in milliseconds.
const searchAfter = 250;

interface Answer {
  text: string;
  found: Found | null;
  // Why nothing could be searched.
  problem: string;
}

// useSearch asks the server what a text means, unless the page knows. The answer is that to the text, or null.
function useSearch(text: string): Answer | null {
  const answer = useSignal<Answer | null>(null);
  useEffect(() => {
    if (!isSearched(text) || !may("metadata")) return;
    const control = new AbortController();
    const timer = setTimeout(() => {
      call(project.value, "GET /v1/search", { query: { text }, signal: control.signal }).then(
        (found) => (answer.value = { text, found, problem: "" }),
        (err) => control.signal.aborted || (answer.value = { text, found: null, problem: (err as Error).message }));
    }, searchAfter);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [text]);
  return answer.value?.text === text ? answer.value : null;
}

// itemsOf returns what was found: workflows open their page, keys and attributes the runs that have them.
function itemsOf(found: Found, text: string): Item[] {
  return found.data.map((h) => (h.kind === "workflow"
    ? { kind: "workflow", name: h.title, detail: h.title === h.name ? "" : h.name, open: () => go(href(["workflows", h.name])) }
    : { kind: "runs", name: filterOf(h, text), open: () => go(href(["runs"], { q: filterOf(h, text) })) }));
}

// stateOf says how many items there are, and what was searched.
function stateOf(items: number, answer: Answer | null, text: string): string {
  if (answer?.problem) return `The server could not search: ${answer.problem}`;
  if (!answer?.found && isSearched(text) && may("metadata")) return "Searching …";
  const known = items === 0 ? "Nothing is found." : `${items} found. Enter opens one.`;
  return answer?.found ? `${known} ${sentenceOf(answer.found, text)}` : known;
}

export function Palette() {
  const { modal, close } = useModal(() => (paletteOpen.value = false));
  const text = useSignal("");
  const at = useSignal(0);
  const here = useMemo(fixed, []);
  const type = (value: string) => {
    text.value = value;
    at.value = 0;
  };
  const q = text.value.trim();
  const answer = useSearch(q);
  const items = [...asked(q), ...matching(here, q), ...(answer?.found ? itemsOf(answer.found, q) : [])];
  const chosen = Math.min(at.value, Math.max(0, items.length - 1));
  const open = (i: Item | undefined) => {
    if (!i) return;
    modal.ref.current?.close(); // gives the focus back before another dialog takes it
    close();
    i.open();
  };
  const press = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      at.value = step(chosen, e.key === "ArrowDown" ? 1 : -1, items.length);
      document.getElementById(`option-${at.value}`)?.scrollIntoView({ block: "nearest" });
    } else if (e.key === "Enter") {
      e.preventDefault();
      open(items[chosen]);
    }
  };
  return (
    <dialog {...modal} class="palette" aria-label="Search">
      <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" aria-label="Search"
        aria-activedescendant={items.length > 0 ? `option-${chosen}` : undefined} autofocus autocomplete="off" spellcheck={false}
        placeholder="A run’s ID, a workflow, an order’s number, customer=7, a page or an action" value={text.value} onKeyDown={press}
        onInput={(e) => type(e.currentTarget.value)} />
      <ul role="listbox" id="palette-list" aria-label="Found">
        {items.map((i, n) => (
          <li role="option" id={`option-${n}`} aria-selected={n === chosen} onClick={() => open(i)} onMouseMove={() => (at.value = n)}>
            <span class="kind">{i.kind}</span><span class="name">{i.name}</span>{i.detail && <span class="quiet">{i.detail}</span>}
          </li>
        ))}
      </ul>
      <p class="quiet" role="status">{stateOf(items.length, answer, q)}</p>
    </dialog>
  );
}
