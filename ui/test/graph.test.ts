import { test } from "node:test";
import assert from "node:assert/strict";
import type { FlowGraph, FlowGraphStep, Reason } from "../src/api.gen";
import { afterOf, box, draw, itemsOf, reasonsOf, stageOf, whatOf, whenOf } from "../src/lib/graph";
import { random } from "./random";

type Shape = Pick<FlowGraph, "steps" | "edges">;

const step = (id: string, layer: number, more: Partial<FlowGraphStep> = {}): FlowGraphStep => ({ id, kind: "call", layer, ...more });

// overlap returns two steps that are drawn over each other.
function overlap({ steps, edges }: Shape): string | undefined {
  const { places, width, height } = draw({ steps, edges });
  for (const [i, p] of places.entries()) {
    if (p.x < 0 || p.y < 0 || p.x + box.width > width || p.y + box.height > height) return `${p.step.id} is outside`;
    const other = places.slice(0, i).find((o) => Math.abs(o.x - p.x) < box.width && Math.abs(o.y - p.y) < box.height);
    if (other) return `${p.step.id} and ${other.step.id}`;
  }
  return undefined;
}

test("a chain leads down, what is wide to the right, and no line is missing", () => {
  const chain = draw({ steps: [step("a", 0), step("b", 1), step("c", 2)], edges: [{ from: "a", to: "b" }, { from: "b", to: "c" }] });
  assert.deepEqual(chain.places.map((p) => p.x), [0, 0, 0]);
  assert.ok(chain.places[0]!.y < chain.places[1]!.y && chain.places[1]!.y < chain.places[2]!.y);
  const fan = draw({ steps: [step("a", 0), ...["b", "c", "d"].map((id) => step(id, 1))], edges: ["b", "c", "d"].map((to) => ({ from: "a", to })) });
  assert.equal(new Set(fan.places.map((p) => p.x)).size, 2);
  assert.equal(fan.places[0]!.y, fan.places[2]!.y); // in the middle of those that need it
  assert.equal(fan.lines.length, 3);
});

test("a line that passes a step passes beside it", () => {
  const steps = [step("a", 0), step("b", 1), step("c", 2)];
  const { places, lines } = draw({ steps, edges: [{ from: "a", to: "b" }, { from: "b", to: "c" }, { from: "a", to: "c" }] });
  const b = places[1]!;
  const straight = /L(-?\d+),(-?\d+)/.exec(lines[2]!.path)!;
  const x = Number(straight[1]);
  assert.ok(x < b.x || x > b.x + box.width, `the line passes at ${x}, and b is at ${b.x}`);
});

test("no two steps lie over each other, whatever the graph is", () => {
  const next = random(7);
  for (let n = 0; n < 40; n++) {
    const steps: FlowGraphStep[] = [];
    const edges: FlowGraph["edges"] = [];
    for (let i = 0; i < 40; i++) {
      const needs = steps.filter(() => next() < 0.06);
      for (const s of needs) edges.push({ from: s.id, to: `s${i}` });
      steps.push(step(`s${i}`, Math.max(-1, ...needs.map((s) => s.layer)) + 1));
    }
    assert.equal(overlap({ steps, edges }), undefined);
  }
});

test("the largest flows are drawn at once", () => {
  const names = Array.from({ length: 240 }, (_, i) => `s${i}`);
  const wide: Shape = { steps: names.map((id, i) => step(id, i === 239 ? 1 : 0)), edges: names.slice(0, 239).map((from) => ({ from, to: "s239" })) };
  const deep: Shape = { steps: names.map((id, i) => step(id, i)), edges: names.flatMap((to, i) => names.slice(0, i).map((from) => ({ from, to }))) };
  for (const shape of [wide, deep]) {
    assert.equal(overlap(shape), undefined);
    assert.equal(draw(shape).lines.length, shape.edges.length);
  }
  assert.deepEqual(draw({ steps: [], edges: [] }).places, []);
});

test("what is said of a step: undoing comes before how it ended", () => {
  const of = (more: Partial<FlowGraphStep>) => stageOf(step("a", 0, more)).word;
  assert.equal(of({}), "not begun");
  assert.equal(of({ stage: "skipped" }), "skipped");
  assert.equal(of({ stage: "completed", undoing: "completed" }), "undone");
  assert.equal(of({ stage: "completed", undoing: "failed" }), "not undone");
  assert.equal(of({ stage: "failed", undoing: "retrying" }), "being undone");
  assert.equal(itemsOf(step("a", 0)), "");
  assert.equal(itemsOf(step("a", 0, { items: { total: 2000, begun: 120, completed: 96, failed: 2 } })), "98 of 2,000, 2 failed");
  assert.equal(itemsOf(step("a", 0, { items: { begun: 3, completed: 3, failed: 0, undone: 1 } })), "3 of 3, 1 undone");
  assert.equal(whatOf(step("a", 0, { name: "a" })), "call");
  assert.equal(whatOf(step("a", 0, { name: "b" })), "call b");
});

test("a step has the first reason that is about it, its undo or an item of it", () => {
  const reason = (of: Partial<Reason>): Reason => ({ kind: "hook", sentence: JSON.stringify(of), remedies: [], commands: [], ...of });
  const list = [{ hookId: "agree" }, { stepId: "parcels[3].pack" }, { stepId: "parcels[4].pack" }, { stepId: "agent#1" }, { stepId: "charge~undo" }, { waitId: "nap" }, {}].map(reason);
  assert.deepEqual([...reasonsOf(list)], [["agree", list[0]], ["parcels", list[1]], ["agent", list[3]], ["charge", list[4]], ["nap", list[5]]]);
  const now = Date.parse("2026-11-21T12:00:00Z");
  assert.equal(whenOf(undefined, now), "");
  assert.equal(whenOf(list[0], now), "");
  assert.equal(whenOf(reason({ since: "2026-11-21T09:00:00Z" }), now), "for 3 h");
  assert.equal(whenOf(reason({ since: "2026-11-21T09:00:00Z", at: "2026-11-21T12:00:20Z" }), now), "in 20 s");
});

test("what leads to a step", () => {
  const edges = [{ from: "a", to: "c" }, { from: "b", to: "c" }, { from: "a", to: "d", catch: "x, y" }, { from: "b", to: "e", catch: "any" }];
  assert.equal(afterOf({ edges }, step("c", 1)), "a, b");
  assert.equal(afterOf({ edges }, step("c", 1, { join: "any" })), "any of a, b");
  assert.equal(afterOf({ edges }, step("c", 1, { join: "always" })), "whatever becomes of a, b");
  assert.equal(afterOf({ edges }, step("d", 1)), "if a fails with x, y");
  assert.equal(afterOf({ edges }, step("e", 1)), "if b fails");
  assert.equal(afterOf({ edges }, step("a", 0)), "");
});
