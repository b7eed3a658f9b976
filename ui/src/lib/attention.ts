// What needs attention: in words, and on which page it is.
import type { AttentionItem, AttentionKind } from "../api.gen";
import { titleOf } from "./names";

interface Kind {
  // The first segment of the page that shows more.
  page: string;
  // Whether the page's number is the count, and not one for the item.
  each: boolean;
  text: (i: AttentionItem) => string;
}

const limit = 1000;

// amount returns a count with its noun.
export function amount(n: number, noun: string): string {
  return n >= limit ? `${limit.toLocaleString("en")}+ ${noun}s` : `${n} ${noun}${n === 1 ? "" : "s"}`;
}

const are = (i: AttentionItem) => (i.count === 1 ? "is" : "are");

const kinds: Record<AttentionKind, Kind> = {
  project_paused: { page: "access", each: false, text: () => "The project is paused: nothing of it starts or is called" },
  paused: { page: "runs", each: false, text: (i) => `${amount(i.count, "pause")} of runs, workflows or deployments` },
  messages_parked: { page: "queue", each: true, text: (i) => `${amount(i.count, "message")} ${are(i)} parked: retry or discard` },
  runs_blocked: { page: "runs", each: true, text: (i) => `${amount(i.count, "run")} ${are(i)} blocked: the function refuses to go on` },
  runs_stranded: { page: "runs", each: true, text: (i) => `${amount(i.count, "run")} ${are(i)} stranded: nothing moves, though the server wakes it` },
  deployment_unreachable: { page: "deployments", each: false, text: (i) => `${i.deployment} cannot be reached: ${amount(i.count, "message")} waiting` },
  deployment_missing: { page: "deployments", each: false, text: (i) => `${i.deployment} is not registered: ${amount(i.count, "message")} waiting` },
  workflow_failing: {
    page: "failures", each: false,
    text: (i) => `${amount(i.count, "run")} of ${titleOf(i.workflow ?? "")} failed in the last hour; ${i.usual ? `at most ${i.usual} is usual` : "usually none does"}`,
  },
  queue_late: { page: "queue", each: false, text: (i) => `${amount(i.count, "message")} ${are(i)} due and not delivered` },
  key_expiring: { page: "access", each: true, text: (i) => `${amount(i.count, "API key")} ${are(i)} about to expire` },
  two_signing_keys: { page: "access", each: false, text: () => "Two signing keys for more than a week: delete the old one" },
};

// Said is an item as it is shown.
export interface Said {
  text: string;
  // Where to look: the segments of a page, and its query.
  to: string[];
  query?: Record<string, string>;
}

// say returns the words for an item, and where to look. A newer server may send kinds that have no words.
export function say(i: AttentionItem): Said {
  const kind = Object.hasOwn(kinds, i.kind) ? kinds[i.kind] : undefined;
  if (!kind) return { text: i.kind.replaceAll("_", " "), to: ["runs"] };
  const to = i.runId ? ["runs", i.runId] : i.workflow ? ["workflows", i.workflow] : [kind.page];
  return { text: kind.text(i), to, ...(i.kind === "deployment_missing" && { query: { add: i.deployment ?? "" } }) };
}

// numbers returns how much needs attention on each page, as the navigation shows it.
export function numbers(items: AttentionItem[]): Record<string, string> {
  const sums: Record<string, number> = {};
  for (const i of items) {
    const kind = Object.hasOwn(kinds, i.kind) ? kinds[i.kind] : undefined;
    if (kind) sums[kind.page] = (sums[kind.page] ?? 0) + (kind.each ? i.count : 1);
  }
  return Object.fromEntries(Object.entries(sums).map(([page, n]) => [page, n >= limit ? `${limit}+` : String(n)]));
}
