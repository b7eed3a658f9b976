// Differences between two JSON values, and between the steps of two runs.
import type { Step } from "../api.gen";
import { writeJson, type JsonValue } from "./jsontext";

export interface DiffRow {
  label: string; // the key, or the index of an item; empty for the whole
  level: number;
  kind: "parent" | "changed" | "added" | "removed";
  // The values as they were written; undefined for a parent, and for the side that lacks it.
  a?: string;
  b?: string;
}

// diffJson returns what differs, each below the values that contain it; nothing if the values are equal. The order of
// keys does not count. Numbers are compared as they were written, so that none is rounded.
export function diffJson(a: JsonValue, b: JsonValue, label = "", level = 0): DiffRow[] {
  if (same(a, b)) return [];
  if (a.kind === "object" && b.kind === "object") return parent(label, level, objects(a, b, level + 1));
  if (a.kind === "array" && b.kind === "array") return parent(label, level, arrays(a.items, b.items, level + 1));
  return [{ label, level, kind: "changed", a: writeJson(a, false), b: writeJson(b, false) }];
}

function parent(label: string, level: number, rows: DiffRow[]): DiffRow[] {
  return [{ label, level, kind: "parent" }, ...rows];
}

function pair(a: JsonValue | undefined, b: JsonValue | undefined, label: string, level: number): DiffRow[] {
  if (a && b) return diffJson(a, b, label, level);
  if (a) return [{ label, level, kind: "removed", a: writeJson(a, false) }];
  return b ? [{ label, level, kind: "added", b: writeJson(b, false) }] : [];
}

type Entries = Extract<JsonValue, { kind: "object" }>;

// numbered returns the values by key. Of a key that is there twice, the second one is "key (2)".
function numbered(v: Entries): Map<string, JsonValue> {
  const values = new Map<string, JsonValue>();
  for (const e of v.entries) {
    let key = e.key;
    for (let n = 2; values.has(key); n++) key = `${e.key} (${n})`;
    values.set(key, e.value);
  }
  return values;
}

function objects(a: Entries, b: Entries, level: number): DiffRow[] {
  const [left, right] = [numbered(a), numbered(b)];
  return [...new Set([...left.keys(), ...right.keys()])].flatMap((key) => pair(left.get(key), right.get(key), key, level));
}

// arrays compares what is between the items that both begin and end with, one by one.
function arrays(a: JsonValue[], b: JsonValue[], level: number): DiffRow[] {
  let start = 0;
  while (start < a.length && start < b.length && same(a[start]!, b[start]!)) start++;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && same(a[a.length - 1 - end]!, b[b.length - 1 - end]!)) end++;
  const rows: DiffRow[] = [];
  for (let i = start; i < Math.max(a.length, b.length) - end; i++) {
    rows.push(...pair(i < a.length - end ? a[i] : undefined, i < b.length - end ? b[i] : undefined, String(i), level));
  }
  return rows;
}

const texts = new WeakMap<JsonValue, string>();

// canonical returns a text that equal values share.
function canonical(v: JsonValue): string {
  let text = texts.get(v);
  if (text !== undefined) return text;
  if (v.kind === "array") text = `[${v.items.map(canonical).join()}]`;
  else if (v.kind === "object") text = `{${[...numbered(v)].map(([k, e]) => JSON.stringify(k) + canonical(e)).sort().join()}}`;
  else text = v.kind === "string" ? JSON.stringify(JSON.parse(v.text)) : v.text;
  texts.set(v, text);
  return text;
}

function same(a: JsonValue, b: JsonValue): boolean {
  return a.kind === b.kind && canonical(a) === canonical(b);
}

export interface Pair {
  name: string;
  a?: Step;
  b?: Step;
}

// alignSteps pairs the steps of two runs: by ID, the others by name and number. The order is that of A; what only B has
// follows the step that it follows in B.
export function alignSteps(a: Step[], b: Step[]): Pair[] {
  const rows: Pair[] = a.map((s) => ({ name: s.name, a: s }));
  const byId = new Map(rows.map((r) => [r.a!.id, r]));
  const rest: Step[] = [];
  for (const s of b) {
    const row = byId.get(s.id);
    if (row && row.name === s.name) row.b = s;
    else rest.push(s);
  }
  const free = new Map<string, Pair[]>();
  for (const r of rows) if (!r.b) put(free, r.name, r);
  for (const s of rest) {
    const row = free.get(s.name)?.shift();
    if (row) row.b = s;
  }
  const rowOf = new Map(rows.flatMap((r) => (r.b ? [[r.b, r] as const] : [])));
  const after = new Map<Pair | null, Pair[]>();
  let last: Pair | null = null;
  for (const s of b) {
    const row = rowOf.get(s);
    if (row) last = row;
    else put(after, last, { name: s.name, b: s });
  }
  return [...(after.get(null) ?? []), ...rows.flatMap((r) => [r, ...(after.get(r) ?? [])])];
}

function put<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

// timeOfStep returns how long a step took, in milliseconds; NaN if it has not ended.
export function timeOfStep(s: Step | undefined): number {
  return s?.completedAt ? Date.parse(s.completedAt) - Date.parse(s.startedAt ?? s.createdAt) : NaN;
}

// isDifferent reports whether the steps of a pair differ in more than a little time: a fifth and 100 ms.
export function isDifferent(p: Pair): boolean {
  if (!p.a || !p.b || p.a.status !== p.b.status || p.a.attempt !== p.b.attempt) return true;
  const [a, b] = [timeOfStep(p.a), timeOfStep(p.b)];
  return Math.abs(a - b) > 100 && Math.abs(a - b) > Math.max(a, b) / 5;
}

export interface NameLine {
  name: string;
  a: number;
  b: number;
  // The time of all steps of the name that have ended, in milliseconds.
  timeA: number;
  timeB: number;
}

// byName returns how many steps of each name two runs have, in order of name.
export function byName(a: Step[], b: Step[]): NameLine[] {
  const lines = new Map<string, NameLine>();
  const line = (s: Step) => {
    const l = lines.get(s.name) ?? { name: s.name, a: 0, b: 0, timeA: 0, timeB: 0 };
    lines.set(s.name, l);
    return l;
  };
  for (const s of a) {
    line(s).a++;
    line(s).timeA += timeOfStep(s) || 0;
  }
  for (const s of b) {
    line(s).b++;
    line(s).timeB += timeOfStep(s) || 0;
  }
  return [...lines.values()].sort((x, y) => (x.name < y.name ? -1 : 1));
}
