// What the timeline has read: the run, the children and the names that were opened.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Reason, Run, TimelinePart } from "../api.gen";
import { call } from "../api";
import { mostRows, type Row, type Source } from "../lib/lanes";
import type { Problem } from "../lib/problem";
import { hasEnded } from "../lib/status";
import { covered, onChange } from "../live";
import { project } from "../location";
import { useResource } from "../resource";

// A run with more events is shown as sums by name.
const longFrom = 1000;
const pageSize = 200;
const livePause = 5000;

export type StepStatus = "pending" | "running" | "completed" | "failed";

export interface Long {
  steps: number;
  names: number;
  next?: string;
}

interface Read extends Source {
  seq: number;
  long?: Long;
}

interface Opening {
  row: string; // its key
  run: string;
  name?: string;
  statuses?: StepStatus[];
}

export function useTimeline(run: Run) {
  const latest = useRef(run);
  latest.current = run;
  const from = useSignal(""); // the cursor of the sums that are shown
  const isLong = run.lastSeq > longFrom;
  const last = useRef<Read | null>(null);
  const shownFrom = useRef("");
  const main = useResource(async (signal) => {
    const seq = latest.current.lastSeq;
    if (last.current?.seq === seq && isLong && from.value === shownFrom.current) return last.current;
    const read = isLong ? await readSums(run.id, from.value, signal) : await readAll(run.id, signal);
    shownFrom.current = from.value;
    return { ...read, seq };
  }, [run.id, isLong, from.value], { poll: isLong && !hasEnded(run) ? livePause : 0, version: isLong ? hasEnded(run) : run.lastSeq });
  if (main.data.value) last.current = main.data.value;

  const opened = useSignal(new Set<string>());
  const inner = useSignal(new Map<string, Source>());
  const openings = useRef(new Map<string, Opening>());
  const problem = useSignal<Problem | null>(null);
  const asked = useRef(new Map<string, object>()); // the last reading of each: an older answer is not shown over a newer one
  const control = useRef(new AbortController());
  useEffect(() => () => control.current.abort(), []);

  const kept = () => [...inner.value.values()].reduce((sum, s) => sum + s.parts.length, last.current?.parts.length ?? 0);
  const load = async (key: string, cursor?: string) => {
    const o = openings.current.get(key);
    if (!o) return;
    const mine = {};
    asked.current.set(key, mine);
    try {
      const answer = await call(project.value, "GET /v1/runs/{id}/timeline", {
        path: { id: o.run }, query: { name: o.name, status: o.statuses, limit: pageSize, cursor }, signal: control.current.signal,
      });
      if (asked.current.get(key) !== mine) return;
      const before = cursor ? inner.value.get(key)?.parts ?? [] : [];
      const parts = [...before, ...answer.data];
      inner.value = new Map(inner.value).set(key, { parts, ...(answer.cursor && { cursor: answer.cursor }) });
      problem.value = null;
      if (answer.data.length === 0 && answer.cursor) await load(key, answer.cursor); // a part of the log without any
    } catch (err) {
      if (!control.current.signal.aborted) problem.value = err as Problem;
    }
  };
  // What is open may change although the log of this run does not: children have their own.
  const changed = useRef(false);
  useEffect(() => onChange((topics) => (changed.current ||= topics.includes("runs"))), []);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden || hasEnded(latest.current) || (covered.peek() && !changed.current)) return;
      changed.current = false;
      for (const [key, o] of openings.current) {
        if (opened.value.has(o.row) && (inner.value.get(key)?.parts.length ?? 0) <= pageSize) void load(key);
      }
    }, livePause);
    return () => clearInterval(timer);
  }, []);

  const close = (key: string) => {
    const keys = new Set(opened.value);
    keys.delete(key);
    opened.value = keys;
  };
  const open = (row: Row, statuses?: StepStatus[]) => {
    opened.value = new Set(opened.value).add(row.key);
    const i = row.item;
    const key = i.kind === "part" && i.part.childId ? i.part.childId : row.key;
    const opening: Opening | null = i.kind === "part" && i.part.childId ? { row: row.key, run: i.part.childId }
      : i.kind === "name" && !i.parts ? { row: row.key, run: row.run, name: i.sum.name, ...(statuses && { statuses }) } : null;
    const before = openings.current.get(key);
    if (!opening || before && String(before.statuses) === String(opening.statuses)) return;
    openings.current.set(key, opening);
    const without = new Map(inner.value);
    without.delete(key);
    inner.value = without;
    void load(key);
  };
  const sources = new Map(inner.value);
  if (last.current) sources.set(run.id, last.current);
  return {
    main, sources, inner: inner.value, opened: opened.value, problem: problem.value, long: last.current?.long, from, open, close,
    full: kept() >= mostRows, more: (key: string) => { if (kept() < mostRows) void load(key, inner.value.get(key)?.cursor); },
  };
}

// readAll reads all parts of a run that is not long.
async function readAll(id: string, signal: AbortSignal): Promise<Source> {
  const source: Source = { parts: [] };
  let cursor: string | undefined;
  do {
    const answer = await call(project.value, "GET /v1/runs/{id}/timeline", { path: { id }, query: { limit: 500, cursor }, signal });
    source.parts.push(...answer.data);
    cursor = answer.cursor;
  } while (cursor);
  return source;
}

// openOf returns the hooks and waits that a run waits for.
function openOf(reasons: Reason[]): TimelinePart[] {
  return reasons.flatMap((r): TimelinePart[] => {
    const createdAt = r.since;
    if (!createdAt || !r.hookId && !r.waitId) return [];
    if (r.hookId) return [{ kind: "hook", id: r.hookId, status: "active", seq: 0, createdAt }];
    return [{ kind: "wait", id: r.waitId!, status: "waiting", seq: 0, createdAt, ...(r.at && { resumeAt: r.at }) }];
  });
}

// readSums reads the sums of a long run, its newest parts for hooks and waits, and what it waits for, which may be older.
async function readSums(id: string, from: string, signal: AbortSignal): Promise<Source & { long: Long }> {
  const [sums, newest, why] = await Promise.all([
    call(project.value, "GET /v1/runs/{id}/timeline/names", { path: { id }, query: { cursor: from || undefined }, signal }),
    call(project.value, "GET /v1/runs/{id}/timeline", { path: { id }, query: { order: "desc", limit: 100 }, signal }),
    call(project.value, "GET /v1/runs/{id}/why", { path: { id }, signal }),
  ]);
  const known = new Set(newest.data.map((p) => `${p.kind} ${p.id}`));
  const open = openOf(why.reasons).filter((p) => !known.has(`${p.kind} ${p.id}`));
  return {
    parts: [...open, ...newest.data.reverse()], names: sums.data, long: { steps: sums.steps, names: sums.names, ...(sums.cursor && { next: sums.cursor }) },
    ...(newest.cursor && { cursor: newest.cursor }),
  };
}
