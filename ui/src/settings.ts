// What a reader chooses, kept in the browser.
import { effect, signal, type Signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

// kept returns a signal whose value the browser keeps under a name.
export function kept<T extends string>(name: string, fallback: T): Signal<T> {
  const key = `stepwell.${name}`;
  let first = fallback;
  try {
    first = (localStorage.getItem(key) as T | null) ?? fallback;
  } catch {
    // The browser keeps nothing for this page.
  }
  const s = signal<T>(first);
  // What another tab has chosen is chosen here, too: else this one would write over it.
  addEventListener("storage", (e) => {
    if (e.key === key) s.value = (e.newValue as T | null) ?? fallback;
  });
  effect(() => {
    try {
      localStorage.setItem(key, s.value);
    } catch {
      // As above.
    }
  });
  return s;
}

export const theme = kept<Theme>("theme", "system");
// zone is a name that Intl knows, such as UTC or Europe/Berlin.
export const zone = kept<string>("zone", "UTC");
// letters tells whether single letters are shortcuts.
export const letters = kept<"on" | "off">("letters", "on");

export const browserZone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

if (zone.value !== "UTC") {
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone.value });
  } catch {
    zone.value = "UTC";
  }
}

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
});
