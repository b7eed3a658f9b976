// A list of runs, the last created or ended first, that changes: it is read, and then kept as messages tell. A run's lastSeq is its version,
// so messages may come late, twice and in any order.
import type { LiveRuns, Run } from "../api.gen";
import { hasEnded } from "./status";

// Order is that of a list. By need, it is that in which the server lists the runs.
export type Order = "created" | "ended" | "need";

export interface RunList {
  by: Order;
  runs: ReadonlyMap<string, Run>;
  // The versions at which runs ceased to match.
  gone: ReadonlyMap<string, number>;
  // Where the next page begins; undefined if the list is complete.
  cursor?: string;
  // The place of the last run that was read; empty if the list is complete. Runs below it are left out.
  end: string;
}

// mostGone is for how many runs that ceased to match the list knows when: messages come late by seconds, not by hours.
const mostGone = 2000;

interface Page {
  data: Run[];
  cursor?: string;
}

// placeOf returns a text that is greater for runs that come earlier in the list; empty for runs that it leaves out.
export function placeOf(r: Run, by: Order): string {
  const at = by === "ended" ? r.completedAt : r.createdAt;
  return at ? `${at} ${r.id}` : "";
}

// listOf returns what a page shows that was just read.
export function listOf(page: Page, by: Order): RunList {
  return withPage({ by, runs: new Map(), gone: new Map(), end: "" }, page);
}

// withPage adds the next page. A run that the list knows at a later version stays.
export function withPage(list: RunList, page: Page): RunList {
  const runs = new Map(list.runs);
  for (const r of page.data) {
    if ((list.gone.get(r.id) ?? 0) < r.lastSeq && (runs.get(r.id)?.lastSeq ?? 0) <= r.lastSeq) runs.set(r.id, r);
  }
  const last = page.data.at(-1);
  const end = page.cursor === undefined ? "" : last ? placeOf(last, list.by) : list.end;
  return { by: list.by, runs, gone: list.gone, end, ...(page.cursor !== undefined && { cursor: page.cursor }) };
}

// withChanges applies a message. A run that has not ended keeps its reason if the message has none.
export function withChanges(list: RunList, news: LiveRuns): RunList {
  const [runs, gone] = [new Map(list.runs), new Map(list.gone)];
  for (const r of news.runs) {
    const place = placeOf(r, list.by);
    if (place === "" || place < list.end || (gone.get(r.id) ?? 0) > r.lastSeq || (runs.get(r.id)?.lastSeq ?? 0) > r.lastSeq) continue;
    const reason = r.reason ?? runs.get(r.id)?.reason;
    runs.set(r.id, reason && !hasEnded(r) ? { ...r, reason } : r);
  }
  for (const g of news.gone) {
    if ((runs.get(g.id)?.lastSeq ?? 0) > g.lastSeq) continue;
    runs.delete(g.id);
    const version = Math.max(g.lastSeq, gone.get(g.id) ?? 0);
    gone.delete(g.id); // the last one is the newest
    gone.set(g.id, version);
  }
  for (const oldest of gone.keys()) {
    if (gone.size <= mostGone) break;
    gone.delete(oldest);
  }
  return { ...list, runs, gone };
}

// Pending are the changes of a list that came since a reading of it began, while there is one: they may be newer than what is read.
export class Pending {
  private readings = 0;
  private list: LiveRuns[] = [];

  // What the list shows: changes of another list do not count for this one.
  constructor(readonly of: string) {}

  // read uses what is read, and what came meanwhile.
  async read<T>(ask: () => Promise<T>, use: (page: T, since: LiveRuns[]) => void): Promise<void> {
    if (this.readings++ === 0) this.list = [];
    try {
      use(await ask(), this.list);
    } finally {
      this.readings--;
    }
  }

  note(changes: LiveRuns): void {
    if (this.readings > 0) this.list.push(changes);
  }
}

// rowsOf returns the runs in the order of the list.
export function rowsOf(list: RunList): Run[] {
  const runs = [...list.runs.values()];
  return list.by === "need" ? runs : runs.sort((a, b) => (placeOf(a, list.by) < placeOf(b, list.by) ? 1 : -1));
}

const seconds = 1000;

// dueAt returns when the list is to be read anew because a reason may have changed without an event: a time has come
// for which a run waits, or a call has ended or failed. What waits for the world goes on with an event.
export function dueAt(runs: Iterable<Run>, readAt: number): number {
  let due = Infinity;
  for (const r of runs) {
    if (hasEnded(r) || !r.reason) continue;
    const { at, until, verdict } = r.reason;
    if (at || until) due = Math.min(due, Date.parse(at ?? until!) + 1 * seconds);
    else if (verdict === "working") due = Math.min(due, readAt + 15 * seconds);
    else if (verdict !== "waiting") due = Math.min(due, readAt + 60 * seconds);
  }
  return due;
}

// shortestPause is the least time between two readings of a list of so many rows.
export function shortestPause(rows: number): number {
  return 5 * seconds * Math.max(1, Math.ceil(rows / 100));
}
