// The graph of a flow: where its steps and what leads from one to another are drawn, and what is said of each step.
import type { FlowGraph, FlowGraphStep, Reason } from "../api.gen";
import { formatAge, formatDuration } from "./duration";
import type { Look, State } from "./status";

// The size of a step, and the least distances: between steps of a layer, and between layers.
export const box = { width: 184, height: 46 };
const apart = 22;
const between = 46;
// Lines past a layer keep this distance from what is beside them.
const lane = 14;
// Beyond this many places where lines pass layers, lines lead straight.
const mostLanes = 3000;
const sweeps = 8;

export interface Place {
  step: FlowGraphStep;
  x: number;
  y: number;
}

export interface Line {
  from: string;
  to: string;
  catch?: string;
  path: string;
}

export interface Drawing {
  places: Place[];
  lines: Line[];
  width: number;
  height: number;
}

// Cell is a place in a layer: of a step, or where a line passes.
interface Cell {
  step?: FlowGraphStep;
  layer: number;
  at: number; // the middle, along the layer
  before: Cell[];
  after: Cell[];
}

// draw lays out a graph: in columns from left to right, or in rows if there are at least as many layers as steps in the
// widest one. What was drawn before a change of stages is drawn in the same places.
export function draw(graph: Pick<FlowGraph, "steps" | "edges">): Drawing {
  const layers: Cell[][] = [];
  const cells = new Map<string, Cell>();
  const add = (layer: number, step?: FlowGraphStep): Cell => {
    const cell: Cell = { step, layer, at: 0, before: [], after: [] };
    while (layers.length <= layer) layers.push([]);
    layers[layer]!.push(cell);
    return cell;
  };
  for (const s of graph.steps) cells.set(s.id, add(s.layer, s));
  const widest = Math.max(0, ...layers.map((l) => l.length));
  const down = layers.length >= widest;
  const routes = route(graph.edges, cells, add);
  order(layers);
  const broad = place(layers, down);
  const long = layers.length * ((down ? box.height : box.width) + between) - between;
  const middle = (c: Cell): [number, number] => {
    const across = c.layer * ((down ? box.height : box.width) + between);
    return down ? [c.at, across + box.height / 2] : [across + box.width / 2, c.at];
  };
  const places = graph.steps.map((step) => {
    const [x, y] = middle(cells.get(step.id)!);
    return { step, x: x - box.width / 2, y: y - box.height / 2 };
  });
  const lines = graph.edges.map((e, i) => ({ ...e, path: pathOf(routes[i]!.map(middle), down) }));
  return down ? { places, lines, width: broad, height: long } : { places, lines, width: long, height: broad };
}

// route returns the cells of each line. Lines from one step pass a layer at one place.
function route(edges: FlowGraph["edges"], cells: Map<string, Cell>, add: (layer: number) => Cell): Cell[][] {
  const passing = edges.map((e) => [cells.get(e.from)!, cells.get(e.to)!] as const);
  const shared = new Map<string, Cell>();
  const far = new Map<string, number>();
  passing.forEach(([from, to], i) => far.set(edges[i]!.from, Math.max(far.get(edges[i]!.from) ?? 0, to.layer - from.layer - 1)));
  const straight = [...far.values()].reduce((sum, n) => sum + n, 0) > mostLanes;
  return passing.map(([from, to], i) => {
    const cellsOf = [from];
    for (let layer = from.layer + 1; layer < to.layer && !straight; layer++) {
      const key = `${layer} ${edges[i]!.from}`;
      if (!shared.has(key)) shared.set(key, add(layer));
      cellsOf.push(shared.get(key)!);
    }
    cellsOf.push(to);
    for (let n = 1; n < cellsOf.length; n++) {
      const [a, b] = [cellsOf[n - 1]!, cellsOf[n]!];
      if (b.before.includes(a)) continue;
      a.after.push(b);
      b.before.push(a);
    }
    return cellsOf;
  });
}

// order puts what belongs together beside each other, so that few lines cross.
function order(layers: Cell[][]): void {
  const number = (l: Cell[]) => l.forEach((c, i) => (c.at = i));
  layers.forEach(number);
  for (let n = 0; n < sweeps; n++) {
    const back = n % 2 === 1;
    for (const l of back ? layers.toReversed() : layers) {
      const wish = new Map(l.map((c) => [c, mean(back ? c.after : c.before, c.at)]));
      l.sort((a, b) => wish.get(a)! - wish.get(b)! || a.at - b.at);
      number(l);
    }
  }
}

// place gives each cell its place along its layer: near those that it belongs to, and apart from those beside it. It
// returns how long the longest layer is.
function place(layers: Cell[][], down: boolean): number {
  const size = (c: Cell) => (c.step ? (down ? box.width : box.height) + apart : lane) / 2;
  const spread = (l: Cell[], wish: number[]) => {
    const low = [...wish], high = [...wish];
    for (let i = 1; i < l.length; i++) low[i] = Math.max(low[i]!, low[i - 1]! + size(l[i - 1]!) + size(l[i]!));
    for (let i = l.length - 2; i >= 0; i--) high[i] = Math.min(high[i]!, high[i + 1]! - size(l[i + 1]!) - size(l[i]!));
    l.forEach((c, i) => (c.at = (low[i]! + high[i]!) / 2));
  };
  for (const l of layers) spread(l, l.map(() => 0));
  for (let n = 0; n < sweeps; n++) {
    const back = n % 2 === 1;
    for (const l of back ? layers.toReversed() : layers) spread(l, l.map((c) => mean(back ? c.after : c.before, c.at)));
  }
  const all = layers.flat();
  const own = (c: Cell) => size(c) - (c.step ? apart / 2 : 0);
  const least = Math.min(...all.map((c) => c.at - own(c)));
  for (const c of all) c.at = Math.round(c.at - least);
  return Math.max(0, ...all.map((c) => c.at + own(c)));
}

function mean(of: Cell[], otherwise: number): number {
  return of.length === 0 ? otherwise : of.reduce((sum, c) => sum + c.at, 0) / of.length;
}

// pathOf is the path of a line: curves between layers, and straight past them.
function pathOf(points: Array<[number, number]>, down: boolean): string {
  const half = (down ? box.height : box.width) / 2;
  const at = ([x, y]: [number, number], by: number) => (down ? [x, y + by] : [x + by, y]) as [number, number];
  const text = ([x, y]: [number, number]) => `${Math.round(x)},${Math.round(y)}`;
  let path = `M${text(at(points[0]!, half))}`;
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [at(points[i - 1]!, half), at(points[i]!, -half)];
    const bend: [number, number] = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    path += `C${text(down ? [a[0], bend[1]] : [bend[0], a[1]])} ${text(down ? [b[0], bend[1]] : [bend[0], b[1]])} ${text(b)}`;
    if (i < points.length - 1) path += `L${text(at(points[i]!, half))}`;
  }
  return path;
}

const looks: Record<NonNullable<FlowGraphStep["stage"]>, Look> = {
  pending: "pending", running: "running", retrying: "retrying", waiting: "waiting", completed: "completed", failed: "failed",
  cancelled: "cancelled", skipped: "cancelled",
};

// stageOf returns how far a step of a run is.
export function stageOf(s: FlowGraphStep): State {
  switch (s.undoing) {
    case undefined: break;
    case "completed": return { look: "cancelled", word: "undone" };
    case "failed": case "cancelled": return { look: "failed", word: "not undone" };
    default: return { look: "retrying", word: "being undone" };
  }
  const stage = s.stage ?? "pending";
  return { look: looks[stage], word: stage === "pending" ? "not begun" : stage };
}

// reasonsOf returns why steps of a run are not done, by the step: what needs a person the most of what is about the step, its
// undo or one of its items, whose IDs begin with that of the step.
export function reasonsOf(reasons: Reason[]): Map<string, Reason> {
  const of = new Map<string, Reason>();
  for (const r of reasons) {
    const step = /^[^[#~]+/.exec(r.stepId ?? r.hookId ?? r.waitId ?? "")?.[0];
    if (step && !of.has(step)) of.set(step, r);
  }
  return of;
}

// whenOf says when a reason ends by itself, or how long it has existed; empty if neither is known.
export function whenOf(r: Reason | undefined, now: number): string {
  if (r?.at) return formatAge(now - Date.parse(r.at));
  return r?.since ? `for ${formatDuration(Math.max(0, now - Date.parse(r.since)))}` : "";
}

// itemsOf says how many items of a map have ended; empty for steps without.
export function itemsOf({ items: i }: FlowGraphStep): string {
  if (!i) return "";
  const parts = [`${count(i.completed + i.failed)} of ${count(i.total ?? i.begun)}`];
  if (i.failed > 0) parts.push(`${count(i.failed)} failed`);
  if (i.undone) parts.push(`${count(i.undone)} undone`);
  return parts.join(", ");
}

function count(n: number): string {
  return n.toLocaleString("en");
}

// whatOf says what a step does.
export function whatOf(s: FlowGraphStep): string {
  return s.name && s.name !== s.id ? `${s.kind} ${s.name}` : s.kind;
}

// afterOf says which steps lead to a step, and how.
export function afterOf(graph: Pick<FlowGraph, "edges">, s: FlowGraphStep): string {
  const to = graph.edges.filter((e) => e.to === s.id);
  const needed = to.filter((e) => e.catch === undefined).map((e) => e.from);
  const caught = to.filter((e) => e.catch !== undefined).map((e) => `if ${e.from} fails${e.catch === "any" ? "" : ` with ${e.catch}`}`);
  const words = s.join === "any" && needed.length > 1 ? ["any of "] : s.join === "always" ? ["whatever becomes of "] : [""];
  return [...(needed.length > 0 ? [words[0] + needed.join(", ")] : []), ...caught].join("; ");
}
