// Collections in words: how they collect starts, and how they stand.
import type { Collection } from "../api.gen";
import type { State } from "./status";

// ruleOf says how a collection collects starts, as the command line does.
export function ruleOf({ debounce: d, batch: b }: Collection): string {
  if (d) return `debounce ${d.quiet}, max ${d.max}, keep ${d.keep}`;
  return b ? `batch of ${b.size}, wait ${b.wait}` : "";
}

// keyOf returns what the starts of a collection have in common; empty for nothing.
export function keyOf(c: Collection): string {
  return (c.debounce ?? c.batch)?.key ?? "";
}

// stateOfCollection tells whether a collection should have started its run.
export function stateOfCollection(c: Collection, now: number): State {
  return Date.parse(c.dueAt) > now ? { look: "waiting", word: "collecting" } : { look: "retrying", word: "due" };
}
