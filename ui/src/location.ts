// Where the reader is. The address has everything that a page shows, so a copied link opens the same.
import { computed, signal } from "@preact/signals";
import { base } from "./api";
import { pageOf, pathOf } from "./lib/path";

const address = signal(read());

function read() {
  return { path: location.pathname, query: location.search, hash: location.hash };
}

// cameBack tells whether the reader has come back to a page, which then is as it was left.
export let cameBack = false;

addEventListener("popstate", () => {
  cameBack = true;
  address.value = read();
});
addEventListener("hashchange", () => (address.value = read()));

export const page = computed(() => pageOf(base, address.value.path) ?? { project: "", segments: [] });
export const project = computed(() => page.value.project);
export const search = computed(() => new URLSearchParams(address.value.query));
export const hash = computed(() => address.value.hash.slice(1));

// href returns the address of a page of the current project, with a query.
export function href(segments: string[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "")).toString();
  return pathOf(base, project.value || "default", ...segments) + (text ? `?${text}` : "");
}

// go opens an address of this program: as a new page, in place of this one, or as a page to which the reader comes back.
export function go(to: string, how: "push" | "replace" | "back" = "push"): void {
  if (how === "replace") history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  if (how !== "replace") cameBack = how === "back";
  address.value = read();
  if (how === "push") scrollTo(0, 0);
}

// follow opens a link without loading the page anew, unless the reader asks for a tab of its own.
export function follow(e: MouseEvent): void {
  const link = (e.target as Element | null)?.closest?.("a");
  if (!link || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  if (link.getAttribute("href")?.startsWith("#")) return; // a place on this page: the browser goes there, with the focus
  if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (pageOf(base, link.pathname) === null || link.pathname.startsWith(`${base}/ui/-/`)) return;
  e.preventDefault();
  if (link.href !== location.href) go(link.href, link.dataset["back"] === undefined ? "push" : "back");
}

// heading is what the page shows, for the title of the tab; empty if its address says it.
export const heading = signal("");
