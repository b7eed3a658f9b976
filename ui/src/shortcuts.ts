// Shortcuts: the page's own, and those of the whole program.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Matcher, type Bindings } from "./lib/keys";
import { letters } from "./settings";

const layers: Array<{ current: Bindings }> = [];
const matcher = new Matcher();

export const helpOpen = signal(false);
export const paletteOpen = signal(false);

// useKeys binds keys while a part of the page is there: from the moment in which one can see it.
export function useKeys(bindings: Bindings): void {
  const layer = useRef<Bindings>(bindings);
  layer.current = bindings;
  useLayoutEffect(() => {
    layers.push(layer);
    return () => void layers.splice(layers.indexOf(layer), 1);
  }, []);
}

addEventListener("keydown", (e) => {
  if ((e.metaKey || e.ctrlKey) && !e.altKey && e.key === "k") {
    e.preventDefault();
    if (!document.querySelector("dialog[open]")) paletteOpen.value = true;
    return;
  }
  if (moveAmongTabs(e)) return e.preventDefault();
  if (letters.value === "off" || e.metaKey || e.ctrlKey || e.altKey || e.defaultPrevented) return;
  const target = e.target as HTMLElement;
  if (target.closest("input, textarea, select, dialog") && e.key !== "Escape") return;
  const all: Bindings = Object.assign({}, ...layers.map((l) => l.current));
  const found = matcher.press(e.key, e.timeStamp, all);
  if (found) {
    e.preventDefault();
    found();
  }
});

// moveAmongTabs goes from a tab to the one beside it with the arrows, as their role promises. Enter opens it.
function moveAmongTabs(e: KeyboardEvent): boolean {
  const tab = (e.target as HTMLElement).closest("[role=tab]");
  const by = e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0;
  if (!tab || by === 0 || e.altKey || e.ctrlKey || e.metaKey) return false;
  const tabs = [...tab.parentElement!.querySelectorAll<HTMLElement>("[role=tab]")];
  tabs[(tabs.findIndex((t) => t === tab) + by + tabs.length) % tabs.length]?.focus();
  return true;
}
