// What the palette offers for a text.
import type { Found, Hit } from "../api.gen";
import { formatTerm, parseFilter, runIdIn } from "./filter";

export interface Item {
  // What it is: a run, a page, an action, …
  kind: string;
  name: string;
  detail?: string;
  open: () => void;
}

// matching returns the items whose names have all words of a text, those that begin with it first.
export function matching(items: Item[], text: string): Item[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = items.filter((i) => words.every((w) => i.name.toLowerCase().includes(w)));
  const begins = (i: Item) => (words[0] && i.name.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return found.map((i, n) => ({ i, n })).sort((a, b) => begins(a.i) - begins(b.i) || a.n - b.n).map(({ i }) => i);
}

// step returns the place after or before one in a list of a length, which is a circle.
export function step(at: number, by: number, length: number): number {
  return length === 0 ? 0 : (at + by + length) % length;
}

// isSearched reports whether the server can find what a text means: it is neither the ID of a run nor a filter, and long enough.
export function isSearched(text: string): boolean {
  return text.length > 1 && text.length <= 256 && runIdIn(text) === null && parseFilter(text).problem !== "";
}

// filterOf returns the filter of the runs that were found.
export function filterOf(h: Hit, text: string): string {
  if (h.kind === "workflow") return formatTerm({ field: "workflow", value: h.name });
  return formatTerm(h.kind === "key" ? { field: "key", value: h.name } : { attribute: h.name, value: text });
}

// sentenceOf says what was searched for a text, and how to search the rest.
export function sentenceOf({ attributes, workflows }: Found, text: string): string {
  const number = (n: number) => n.toLocaleString("en");
  const part = attributes.searched < attributes.of || attributes.atLeast;
  const names = part ? `${number(attributes.searched)} of ${attributes.atLeast ? "at least " : ""}${number(attributes.of)} attribute names`
    : attributes.of === 1 ? "the one attribute name" : `all ${number(attributes.of)} attribute names`;
  return `Searched ${workflows.atLeast ? `the first ${number(workflows.searched)} ` : ""}workflows, keys and ${attributes.of === 0 ? "no attributes: there are none" : names}`
    + (part ? `; type ${formatTerm({ attribute: "NAME", value: text })} to search one.` : ".");
}

// sameTitle returns the names of the workflows whose title is the text; none if a workflow has that name.
export function sameTitle({ data }: Found, text: string): string[] {
  const workflows = data.filter((h) => h.kind === "workflow");
  if (workflows.some((h) => h.name === text)) return [];
  return workflows.filter((h) => h.title.toLowerCase() === text.toLowerCase()).map((h) => h.name);
}
