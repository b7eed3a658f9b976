// The list of runs that a page shows: read once, and then changed by the live connection.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { call, isRecalled } from "./api";
import type { Run } from "./api.gen";
import { clock } from "./clock";
import { needOf, queryOf, type Filter } from "./lib/filter";
import { dueAt, listOf, Pending, placeOf, rowsOf, shortestPause, withChanges, withPage, type Order, type RunList } from "./lib/runlist";
import { hasEnded } from "./lib/status";
import { covered, paused, useLive } from "./live";
import { cameBack, href, page, project } from "./location";
import { useResource, type Resource } from "./resource";

const pageSize = 100;
const largestPage = 1000;
const pollEvery = 5000;
// reasonTopics are the topics of what makes runs stuck, retry or wait.
export const reasonTopics = ["runs", "queue", "servers"] as const;
const reasonWeight = 4; // what reads reasons of many runs
const longestTimer = 3_600_000; // browsers know no timers of months
// A list that has grown by so many rows is read anew, so that a page that stays open does not grow for ever.
const mostNew = 200;
// While somebody reads further down, the rows below the newest ones stay: so many wait above them at most.
const mostWaiting = 5000;

export interface Runs {
  // The rows to show; null before the first answer.
  rows: Run[] | null;
  // How many newer runs wait until the reader asks for them, or is at the top of the list.
  waiting: number;
  showNew: () => void;
  first: Resource<boolean>;
  // Whether there are older runs, and reads them.
  more: boolean;
  reading: boolean;
  readOlder: () => Promise<void>;
}

const atTop = () => window.scrollY < 40;

// Left is a list as a reader has left it, for when he comes back to it, and for the way from one of its runs to the next.
interface Left {
  scope: string;
  project: string;
  query: Record<string, string>;
  list: RunList;
  // How many of its rows were read, and the place of the newest one that was shown.
  read: number;
  seen: string;
  ids: string[];
  scrolled: number;
  // The run whose row has had the focus last.
  focus: string;
}

let left: Left | null = null;

const ofHere = () => (left?.project === project.value ? left : null);

// listAddress is the address of the list that was left last, with its filter and order.
export function listAddress(): string {
  return href(["runs"], ofHere()?.query);
}

// beside returns the run so many rows below another one in the list that was left last; empty if there is none.
export function beside(id: string, by: number): string {
  const ids = ofHere()?.ids ?? [];
  const at = ids.indexOf(id);
  return at < 0 ? "" : ids[at + by] ?? "";
}

// noteFocus notes the run whose row has the focus.
export function noteFocus(id: string): void {
  if (left) left.focus = id;
}

// focusLeft returns the run whose row had the focus when the reader left the list to which he has come back; else empty.
export function focusLeft(): string {
  return cameBack ? ofHere()?.focus ?? "" : "";
}

export function useRuns(filter: Filter, text: string, by: Order): Runs {
  const scope = `${project.value} ${by} ${text}`;
  const query = () => ({ ...queryOf(filter, clock.now()), include: "reason" as const, ...(by !== "created" && { orderBy: by }) });
  const byReason = by === "need" || needOf(filter) !== ""; // what is in the list, and where, follows from more than events of runs
  const was = left?.scope === scope ? left : null;
  const kept = useSignal<{ scope: string; list: RunList; read: number } | null>(was);
  const seen = useSignal(was?.seen ?? ""); // the place of the newest run that is shown
  const readAt = useRef(0);
  const changed = useSignal(false); // an open run has changed, and nobody has said why it is not done
  const reading = useSignal(false);
  const pending = useRef(new Pending(scope));
  if (pending.current.of !== scope) pending.current = new Pending(scope);
  const list = kept.value?.scope === scope ? kept.value.list : null;
  const read = async (signal: AbortSignal) => {
    const now = kept.peek();
    if (isRecalled(signal) && now?.scope === scope) return true; // changes came since
    const shown = now?.scope !== scope ? 0 : atTop() ? now.read : now.list.runs.size;
    const limit = Math.max(pageSize, Math.min(largestPage, shown));
    changed.value = false;
    readAt.current = clock.now();
    await pending.current.read(() => call(project.value, "GET /v1/runs", { query: { ...query(), limit }, signal }),
      (page, since) => keep(since.reduce(withChanges, listOf(page, by)), page.data.length));
    return true;
  };
  const keep = (l: RunList, read: number) => {
    if (atTop() || byReason || kept.peek()?.scope !== scope) seen.value = newest(l);
    kept.value = { scope, list: l, read };
  };
  const first = useResource(read, [scope], { every: pollEvery, ...(byReason && { on: reasonTopics, weight: reasonWeight }) });
  useLive(byReason ? "" : `runs ${by} ${text}`, () => ({ ...queryOf(filter, clock.now()), runs: true }), (m) => {
    if (m.kind !== "runs") return;
    pending.current.note(m.data);
    const now = kept.peek();
    if (now?.scope !== scope) return;
    const next = withChanges(now.list, m.data);
    if (m.data.runs.some((r) => !hasEnded(r) && !r.reason)) changed.value = true;
    keep(next, now.read);
    if (next.runs.size > now.read + (atTop() ? mostNew : mostWaiting)) first.refresh();
  }, first.refresh);
  const showNew = () => (seen.value = list ? newest(list) : "");
  useEffect(() => {
    const scrolled = () => {
      if (left?.scope === scope && page.value.segments.length === 1) left.scrolled = window.scrollY;
      if (atTop()) showNew();
    };
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  });
  const readOlder = async () => {
    if (!list?.cursor || reading.value) return;
    reading.value = true;
    try {
      const next = { ...query(), limit: pageSize, cursor: list.cursor };
      await pending.current.read(() => call(project.value, "GET /v1/runs", { query: next }), (page, since) => {
        const now = kept.peek();
        if (now?.scope === scope) keep(since.reduce(withChanges, withPage(now.list, page)), now.read + page.data.length);
      });
    } catch {
      first.refresh(); // shows what is wrong
    }
    reading.value = false;
  };
  const all = list && rowsOf(list);
  const rows = all?.filter((r) => placeOf(r, by) <= seen.value) ?? null;
  // Reasons that change without an event are read when they may have changed, unless the list is read every few seconds anyway.
  const due = !covered.value || paused.value || !rows ? Infinity : changed.value ? 0 : dueAt(rows, readAt.current);
  useEffect(() => {
    if (due === Infinity) return;
    const earliest = readAt.current + shortestPause(rows?.length ?? 0);
    const timer = setTimeout(() => document.hidden || first.refresh(), Math.min(longestTimer, Math.max(due, earliest) - clock.now()));
    return () => clearTimeout(timer);
  }, [due, readAt.current]);
  useLayoutEffect(() => {
    if (kept.value?.scope !== scope || !rows) return;
    const same = left?.scope === scope ? left : null;
    left = {
      scope, project: project.value, query: { q: text, order: by === "created" ? "" : by }, list: kept.value.list, read: kept.value.read,
      seen: seen.value, ids: rows.map((r) => r.id), scrolled: same?.scrolled ?? 0, focus: same?.focus ?? "",
    };
  });
  useLayoutEffect(() => {
    if (cameBack && was) scrollTo(0, was.scrolled);
  }, []);
  return {
    rows, waiting: all && rows ? all.length - rows.length : 0, showNew, first,
    more: list?.cursor !== undefined, reading: reading.value, readOlder,
  };
}

function newest(l: RunList): string {
  let place = "";
  for (const r of l.runs.values()) if (placeOf(r, l.by) > place) place = placeOf(r, l.by);
  return place;
}
