// The rows of a timeline, and what is drawn in each.
import type { TimelineName, TimelinePart } from "../api.gen";
import { formatAge, formatDuration } from "./duration";
import type { Span } from "./gaps";
import { titleOf, titleOfPart } from "./names";
import { stateOfOutcome, type Look, type State } from "./status";

export type Shape = "queued" | "ran" | "failed" | "backoff" | "waiting";

// Segment is a span of a row. Its shape says what it is, its look the colour that repeats it.
export interface Segment extends Span {
  shape: Shape;
  look: Look;
  // It has not ended: an arrow says so.
  open?: boolean;
}

export interface Drawing {
  segments: Segment[];
  // The times of what a hook received.
  marks: number[];
}

const time = (at: string) => Date.parse(at);

// stateOfPart returns the state of a step, hook or wait.
export function stateOfPart(p: TimelinePart): State {
  if (p.status === "pending" && p.childId) return { look: "running", word: "running" };
  if (p.status === "pending") return p.attempts ? { look: "retrying", word: "retrying" } : { look: "pending", word: "queued" };
  if (p.outcome) return stateOfOutcome(p.outcome);
  if (p.kind === "hook" && p.received && (p.status === "disposed" || p.status === "abandoned")) return { look: "completed", word: "answered" };
  const states: Record<Exclude<TimelinePart["status"], "pending">, State> = {
    running: { look: "running", word: "running" }, completed: { look: "completed", word: p.kind === "wait" ? "over" : "completed" },
    failed: { look: "failed", word: "failed" }, active: { look: "waiting", word: "open" }, disposed: { look: "completed", word: "closed" },
    conflict: { look: "failed", word: "conflict" }, waiting: { look: "waiting", word: "sleeping" },
    cancelled: { look: "cancelled", word: "cancelled" }, abandoned: { look: "cancelled", word: "abandoned" },
  };
  return states[p.status];
}

export const isOpen = (p: TimelinePart) => !p.endedAt;

// hasFailure reports whether an attempt at a step failed, or the part itself.
export function hasFailure(p: TimelinePart): boolean {
  return stateOfPart(p).look === "failed" || (p.attempts ?? []).some((a) => a.outcome !== undefined && a.outcome !== "completed");
}

// startOf returns when a part began: a step that its function recorded later, before it was created.
export function startOf(p: TimelinePart): number {
  const first = p.attempts?.[0];
  return first && !p.cut ? Math.min(time(p.createdAt), time(first.startedAt)) : time(p.createdAt);
}

// drawingOf returns the segments of a part at a time.
export function drawingOf(p: TimelinePart, now: number): Drawing {
  const open = isOpen(p);
  const end = p.endedAt ? time(p.endedAt) : now;
  const marks = (p.received ?? []).map((r) => time(r.at));
  if (p.kind !== "step") {
    return { segments: [{ from: time(p.createdAt), to: end, shape: "waiting", look: stateOfPart(p).look, open }], marks };
  }
  if (!p.attempts && (p.childId || p.status === "completed" || p.status === "failed")) { // a child, or a result that the function recorded
    return { segments: [{ from: time(p.createdAt), to: end, shape: "ran", look: stateOfPart(p).look, open }], marks };
  }
  const segments: Segment[] = [];
  let from = time(p.createdAt);
  let shape: Shape = "queued";
  for (const a of p.attempts ?? []) {
    const began = time(a.startedAt);
    if (began > from && !(p.cut && segments.length === 0)) segments.push({ from, to: began, shape, look: shape === "queued" ? "pending" : "retrying" });
    const ended = a.endedAt ? time(a.endedAt) : end;
    const failed = a.outcome !== undefined && a.outcome !== "completed";
    segments.push({ from: began, to: ended, shape: failed ? "failed" : "ran", look: failed ? "failed" : a.endedAt ? "completed" : stateOfPart(p).look, open: open && !a.endedAt });
    from = ended;
    shape = "backoff";
  }
  if (p.status === "pending" || p.status === "abandoned" && from < end && segments.at(-1)?.shape !== "ran") {
    segments.push({ from, to: Math.max(from, end), shape, look: shape === "queued" ? "pending" : "retrying", open });
  }
  return { segments, marks: [] };
}

// busyOf returns when something ran, was queued, began or ended. Quiet is what waits: for somebody, for a child, or for its
// next attempt.
export function busyOf(parts: TimelinePart[], now: number): Span[] {
  const busy: Span[] = [];
  for (const p of parts) {
    const d = drawingOf(p, now);
    for (const s of d.segments) {
      if (s.shape === "waiting" || s.shape === "backoff" || p.childId) {
        busy.push({ from: s.from, to: s.from });
        if (!s.open) busy.push({ from: s.to, to: s.to });
      } else busy.push({ from: s.from, to: s.to });
    }
    for (const at of d.marks) busy.push({ from: at, to: at });
  }
  return busy;
}

// stretchesOf returns the parts of the time of a sum, with how many steps were open in each.
export function stretchesOf(n: TimelineName): Array<Span & { count: number }> {
  const from = time(n.firstAt);
  const width = (time(n.lastAt) - from) / n.density.length;
  return n.density.map((count, i) => ({ from: from + i * width, to: from + (i + 1) * width, count })).filter((s) => s.count > 0);
}

const buckets = 60;

// sumUp sums up steps of one name, as the server does for long runs.
export function sumUp(name: string, parts: TimelinePart[], now: number): TimelineName {
  const spans = parts.map((p) => ({ from: startOf(p), to: p.endedAt ? time(p.endedAt) : now }));
  const from = Math.min(...spans.map((s) => s.from));
  const to = Math.max(...spans.map((s) => s.to));
  const density = new Array<number>(buckets).fill(0);
  const bucket = (t: number) => Math.min(buckets - 1, Math.floor((t - from) / Math.max(1, to - from) * buckets));
  for (const s of spans) for (let i = bucket(s.from); i <= bucket(s.to); i++) density[i]!++;
  const ended = parts.filter((p) => p.status === "completed" || p.status === "failed").map((p) => ({ id: p.id, took: time(p.endedAt!) - time(p.attempts?.[0]?.startedAt ?? p.createdAt) }))
    .sort((a, b) => a.took - b.took);
  const count = (...statuses: string[]) => parts.filter((p) => statuses.includes(p.status)).length;
  const last = ended.at(-1);
  return {
    name, count: parts.length, pending: count("pending"), running: count("running"), completed: count("completed"), failed: count("failed"),
    retried: parts.filter((p) => (p.attempts?.length ?? 0) > 1).length, firstAt: new Date(from).toISOString(), lastAt: new Date(to).toISOString(), density,
    ...(last && { p50Ms: ended[Math.floor((ended.length - 1) / 2)]!.took, maxMs: last.took, slowest: last.id }),
  };
}

export type Item =
  | { kind: "part"; part: TimelinePart }
  | { kind: "name"; sum: TimelineName; parts?: TimelinePart[] }
  | { kind: "attempt"; part: TimelinePart; n: number }
  | { kind: "note"; text: string; more?: string };

// fold makes one item of the steps of a name that overlap, or are many.
export function fold(parts: TimelinePart[], now: number): Item[] {
  const names = new Map<string, TimelinePart[]>();
  for (const p of parts) if (p.kind === "step" && p.name) names.set(p.name, [...names.get(p.name) ?? [], p]);
  const items: Item[] = [];
  for (const p of parts) {
    const same = p.kind === "step" && p.name ? names.get(p.name)! : [p];
    if (!isFolded(same, now)) items.push({ kind: "part", part: p });
    else if (same[0] === p) items.push({ kind: "name", sum: sumUp(p.name!, same, now), parts: same });
  }
  return items;
}

function isFolded(same: TimelinePart[], now: number): boolean {
  if (same.length < 3) return false;
  if (same.length > 12) return true;
  const spans = same.map((p) => ({ from: startOf(p), to: p.endedAt ? time(p.endedAt) : now })).sort((a, b) => a.from - b.from);
  return spans.some((s, i) => i > 0 && s.from < spans[i - 1]!.to);
}

export interface Row {
  key: string;
  level: number;
  run: string;
  // Whether it is opened; undefined if there is nothing in it.
  opened?: boolean;
  item: Item;
}

// Source is what is known of a run, or of the steps of a name in it.
export interface Source {
  parts: TimelinePart[];
  // Sums in place of all steps, for a run that is long.
  names?: TimelineName[];
  // There is more than this.
  cursor?: string;
}

export interface Choice {
  folded: boolean;
  only: "" | "open" | "failed";
  find: string;
}

export const deepest = 3;
// mostRows is how many steps, hooks and waits the browser keeps.
export const mostRows = 2000;

export const sourceOfName = (run: string, name: string) => `${run}=${name}`;

// rowsOf returns the rows of a run. Opened rows have those within them behind them.
export function rowsOf(run: string, sources: Map<string, Source>, opened: Set<string>, choice: Choice, now: number, level = 1): Row[] {
  const source = sources.get(run);
  if (!source) return [{ key: `${run}:reading`, level, run, item: { kind: "note", text: "Reading …" } }];
  const parts = source.parts.filter((p) => (!source.names || p.kind !== "step") && shown(p, choice));
  const items: Item[] = choice.folded ? fold(parts, now) : parts.map((part) => ({ kind: "part", part }));
  const names = (source.names ?? []).filter((n) => nameShown(n, choice)).map((sum): Item => ({ kind: "name", sum }));
  const rows = [...names, ...items].flatMap((item) => rowsOfItem(run, item, sources, opened, choice, now, level));
  if (source.cursor && !source.names) rows.push({ key: `${run}:more`, level, run, item: { kind: "note", text: "There is more: open the run." } });
  return rows;
}

function rowsOfItem(run: string, item: Item, sources: Map<string, Source>, opened: Set<string>, choice: Choice, now: number, level: number): Row[] {
  if (item.kind === "name") {
    const key = sourceOfName(run, item.sum.name);
    const row: Row = { key, level, run, opened: opened.has(key), item };
    if (!row.opened) return [row];
    const own = item.parts ? { parts: item.parts } : sources.get(key);
    if (!own) return [row, { key: `${key}:reading`, level: level + 1, run, item: { kind: "note", text: "Reading …" } }];
    const inner = own.parts.filter((p) => shown(p, choice)).flatMap((part) => rowsOfItem(run, { kind: "part", part }, sources, opened, choice, now, level + 1));
    if (own.cursor) inner.push({ key: `${key}:more`, level: level + 1, run, item: { kind: "note", text: `${own.parts.length} are shown`, more: key } });
    return [row, ...inner];
  }
  if (item.kind !== "part") return [];
  const p = item.part;
  const key = `${run}:${p.kind}:${p.id}`;
  const inside = p.childId || (p.attempts?.length ?? 0) > 1;
  const row: Row = { key, level, run, item, ...(inside && { opened: opened.has(key) }) };
  if (!row.opened) return [row];
  if (!p.childId) return [row, ...p.attempts!.map((a, n): Row => ({ key: `${key}#${a.seq}`, level: level + 1, run, item: { kind: "attempt", part: p, n } }))];
  if (level > deepest) return [row, { key: `${key}:deep`, level: level + 1, run, item: { kind: "note", text: "Open its page to see more." } }];
  return [row, ...rowsOf(p.childId, sources, opened, choice, now, level + 1)];
}

function shown(p: TimelinePart, c: Choice): boolean {
  return (c.only !== "open" || isOpen(p)) && (c.only !== "failed" || hasFailure(p)) && (c.find === "" || `${p.name ?? ""} ${p.id}`.includes(c.find));
}

function nameShown(n: TimelineName, c: Choice): boolean {
  return (c.only !== "open" || n.pending + n.running > 0) && (c.only !== "failed" || n.failed + n.retried > 0) && (c.find === "" || n.name.includes(c.find));
}

// stateOfName returns the state of a sum: what needs attention first.
export function stateOfName(n: TimelineName): State {
  if (n.failed > 0) return { look: "failed", word: `${n.failed} failed` };
  if (n.running > 0) return { look: "running", word: `${n.running} running` };
  if (n.pending > 0) return { look: "pending", word: `${n.pending} queued` };
  return n.completed === n.count ? { look: "completed", word: "completed" } : { look: "cancelled", word: "abandoned" };
}

// nextOf returns the next row behind a key that something holds for, or the first one; -1 for none.
export function nextOf(rows: Row[], key: string, holds: (r: Row) => boolean): number {
  const at = rows.findIndex((r) => r.key === key);
  for (let i = 1; i <= rows.length; i++) {
    const n = (at + i) % rows.length;
    if (holds(rows[n]!)) return n;
  }
  return -1;
}

// fails reports whether a row has a failure that no row within it shows.
export function fails(r: Row): boolean {
  if (r.opened) return false;
  if (r.item.kind === "name") return r.item.parts ? r.item.parts.some(hasFailure) : r.item.sum.failed > 0;
  return r.item.kind === "part" ? hasFailure(r.item.part) : r.item.kind === "attempt" && isFailure(r.item.part, r.item.n);
}

// isFailure reports whether an attempt failed.
export function isFailure(p: TimelinePart, n: number): boolean {
  const outcome = p.attempts?.[n]?.outcome;
  return outcome !== undefined && outcome !== "completed";
}

// holdsUp reports whether the run waits for a row.
export function holdsUp(r: Row): boolean {
  if (r.opened && r.item.kind === "name") return false;
  return r.item.kind === "name" ? r.item.sum.pending + r.item.sum.running > 0 : r.item.kind === "part" && isOpen(r.item.part);
}

// labelOf reads a row to those who do not see it.
export function labelOf(r: Row, now: number): string {
  const i = r.item;
  if (i.kind === "note") return i.more ? `${i.text}: show more` : i.text;
  if (i.kind === "name") {
    const s = i.sum;
    return [titleOf(s.name), `${s.count} steps`, stateOfName(s).word, s.p50Ms !== undefined && `median ${formatDuration(s.p50Ms)}, slowest ${formatDuration(s.maxMs!)}`,
      `began ${formatAge(now - time(s.firstAt))}`].filter(Boolean).join(", ");
  }
  const p = i.part;
  if (i.kind === "attempt") {
    const a = p.attempts![i.n]!;
    return `attempt, ${a.outcome ?? "running"}${a.code ? ` with ${a.code}` : ""}, ${formatDuration((a.endedAt ? time(a.endedAt) : now) - time(a.startedAt))}`;
  }
  const attempts = p.attempts?.length ?? 0;
  return [titleOfPart(p), p.childId ? "child run" : p.kind, p.at && `at ${p.at}`, p.undo && `undone by ${p.undo} if it has to be`, stateOfPart(p).word, attempts > 1 && `${p.cut ? "more than " : ""}${attempts} attempts`,
    p.received && `${p.received.length} received`, nextAt(p) > now && `goes on ${formatAge(now - nextAt(p))}`, `began ${formatAge(now - startOf(p))}`,
    p.endedAt && `took ${formatDuration(time(p.endedAt) - startOf(p))}`].filter(Boolean).join(", ");
}

// nextAt returns when an open part goes on by itself; 0 if that is not known.
export function nextAt(p: TimelinePart): number {
  if (!isOpen(p)) return 0;
  const retry = p.status === "pending" ? p.attempts?.at(-1)?.retryAfter : undefined;
  const at = p.resumeAt ?? retry;
  return at ? time(at) : 0;
}
