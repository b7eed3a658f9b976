// The palette: what one looks for, and where one wants to go.
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { call } from "../api";
import type { Api } from "../api.gen";
import { formatFilter } from "../lib/filter";
import { matching, step, type Item } from "../lib/palette";
import { go, href, project } from "../location";
import { role } from "../session";
import { paletteOpen } from "../shortcuts";
import { linkOf, personal, shared } from "../views";
import { places, usual } from "./frame";

type Hit = Api["GET /v1/search"]["answer"]["data"][number];

// itemOf returns where a hit leads.
function itemOf(h: Hit): Item {
  const filtered = (q: string) => () => go(href(["runs"], { q }));
  const run = (...more: string[]) => () => go(href(["runs", h.runId ?? "", ...more]));
  const detail = [h.workflow, h.status].filter(Boolean).join(" · ");
  switch (h.kind) {
    case "run": return { kind: "run", name: h.text, detail, open: run() };
    case "key": return { kind: "key", name: h.text, detail: `${detail} · ${h.runId?.slice(-8)}`, open: run() };
    case "hook": return { kind: "hook", name: h.text, detail: h.runId, open: run("hooks") };
    case "message": return { kind: "message", name: h.text, detail: h.runId, open: h.runId ? run("messages") : () => go(href(["queue"])) };
    case "attribute": return { kind: "attribute", name: `${h.attribute}=${h.text}`, open: filtered(formatFilter([{ attribute: h.attribute ?? "", value: h.text }])) };
    default: return { kind: "workflow", name: h.text, detail: "its runs", open: filtered(formatFilter([{ field: "workflow", value: h.text }])) };
  }
}

// fixed returns the pages, the views, and what the buttons of this page do.
function fixed(): Item[] {
  const buttons = [...document.querySelectorAll<HTMLButtonElement>("#content .page-head button, #content .actions button, #content .toolbar > button")]
    .filter((b) => !b.disabled && b.innerText.trim() !== "" && b.checkVisibility());
  return [
    ...buttons.map((b) => ({ kind: "action", name: b.innerText.trim(), open: () => b.click() })),
    ...places.filter((p) => p.roles?.includes(role.value) ?? true).map((p) => ({ kind: "page", name: p.name, detail: p.key, open: () => go(href([p.segment])) })),
    ...[...usual, ...personal.value, ...shared.value].map((v) => ({ kind: "view", name: v.name, detail: v.filter, open: () => go(linkOf(v)) })),
  ];
}

export function Palette() {
  const element = useRef<HTMLDialogElement>(null);
  const text = useSignal("");
  const at = useSignal(0);
  const here = useMemo(fixed, []);
  // What the server found, and for which text.
  const found = useSignal<{ of: string; items: Item[]; problem: string }>({ of: "", items: [], problem: "" });
  const pending = useRef<{ timer: number; control: AbortController }>({ timer: 0, control: new AbortController() });
  const stop = () => {
    clearTimeout(pending.current.timer);
    pending.current.control.abort();
  };
  useLayoutEffect(() => {
    element.current?.showModal();
    return stop;
  }, []);
  const search = async (q: string, signal: AbortSignal) => {
    try {
      const { data } = await call(project.value, "GET /v1/search", { query: { q }, signal });
      found.value = { of: q, items: data.map(itemOf), problem: "" };
    } catch (err) {
      if (!signal.aborted) found.value = { of: q, items: [], problem: (err as Error).message };
    }
  };
  const type = (value: string) => {
    text.value = value;
    at.value = 0;
    stop();
    const control = new AbortController();
    const q = value.trim();
    pending.current = { control, timer: q === "" ? 0 : window.setTimeout(() => void search(q, control.signal), 150) };
  };
  const q = text.value.trim();
  const answered = q === "" || found.value.of === q;
  const items = [...(answered && q !== "" ? found.value.items : []), ...matching(here, q)];
  const chosen = Math.min(at.value, Math.max(0, items.length - 1));
  const open = (i: Item | undefined) => {
    if (!i) return;
    element.current?.close();
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
    <dialog ref={element} class="palette" onClose={() => (paletteOpen.value = false)} aria-label="Search">
      <input role="combobox" aria-expanded="true" aria-controls="palette-list" aria-autocomplete="list" aria-label="Search"
        aria-activedescendant={items.length > 0 ? `option-${chosen}` : undefined} autofocus autocomplete="off" spellcheck={false}
        placeholder="A run, key, attribute, token, message, workflow, page or action" value={text.value} onKeyDown={press}
        onInput={(e) => type(e.currentTarget.value)} />
      <ul role="listbox" id="palette-list" aria-label="Found">
        {items.map((i, n) => (
          <li role="option" id={`option-${n}`} aria-selected={n === chosen} onClick={() => open(i)} onMouseMove={() => (at.value = n)}>
            <span class="kind">{i.kind}</span><span class="name">{i.name}</span>{i.detail && <span class="quiet">{i.detail}</span>}
          </li>
        ))}
      </ul>
      <p class="quiet" role="status">{!answered ? "Searching …" : found.value.problem && q !== "" ? `The search failed: ${found.value.problem}` : items.length === 0 ? "Nothing is found." : `${items.length} found. Enter opens one.`}</p>
    </dialog>
  );
}
