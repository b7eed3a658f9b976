// The palette: what one looks for, and where one wants to go.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { call } from "../api";
import type { Api } from "../api.gen";
import { formatFilter } from "../lib/filter";
import { matching, step, type Item } from "../lib/palette";
import { go, href, project } from "../location";
import { role } from "../session";
import { paletteOpen } from "../shortcuts";
import { linkOf, personal, shared } from "../views";
import { places } from "./frame";

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
    ...[...personal.value, ...shared.value].map((v) => ({ kind: "view", name: v.name, detail: v.filter, open: () => go(linkOf(v)) })),
  ];
}

export function Palette() {
  const element = useRef<HTMLDialogElement>(null);
  const text = useSignal("");
  const at = useSignal(0);
  const here = useSignal<Item[]>([]).value;
  const found = useSignal<Item[]>([]);
  useLayoutEffect(() => {
    if (here.length === 0) here.push(...fixed());
    element.current?.showModal();
  }, []);
  const q = text.value.trim();
  useEffect(() => {
    found.value = [];
    if (q === "") return;
    const control = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const { data } = await call(project.value, "GET /v1/search", { query: { q }, signal: control.signal });
        found.value = data.map(itemOf);
      } catch {
        // Pages and actions are there without it.
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [q]);
  const items = [...found.value, ...matching(here, q)];
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
        onInput={(e) => { text.value = e.currentTarget.value; at.value = 0; }} />
      <ul role="listbox" id="palette-list" aria-label="Found">
        {items.map((i, n) => (
          <li role="option" id={`option-${n}`} aria-selected={n === chosen} onClick={() => open(i)} onMouseMove={() => (at.value = n)}>
            <span class="kind">{i.kind}</span><span class="name">{i.name}</span>{i.detail && <span class="quiet">{i.detail}</span>}
          </li>
        ))}
      </ul>
      <p class="quiet" role="status">{items.length === 0 ? "Nothing is found." : `${items.length} found. Enter opens one.`}</p>
    </dialog>
  );
}
