import { test } from "node:test";
import assert from "node:assert/strict";
import type { Outcome, TimelinePart } from "../src/api.gen";
import { gapsOf, type Span } from "../src/lib/gaps";
import {
  busyOf, drawingOf, fails, fold, holdsUp, labelOf, nextOf, rowsOf, sourceOfName, stateOfPart, stretchesOf, sumUp, type Source,
} from "../src/lib/lanes";
import { apart, Axis, isWhole, percent, ticksOf, whole, within, zoom } from "../src/lib/scale";
import { stateOfHook } from "../src/lib/status";
import { random } from "./random";

// someRun returns random busy spans between 0 and an end.
function someRun(next: () => number): { busy: Span[]; end: number } {
  const end = Math.floor(10 ** (1 + next() * 9));
  const busy = Array.from({ length: Math.floor(next() * 12) }, () => {
    const from = next() * end;
    return { from, to: Math.min(end, from + next() * next() * end / 5) };
  });
  return { busy, end };
}

test("quiet times are cut if they are longer than a tenth of the rest", () => {
  const minute = 60_000;
  const at = (...times: number[]) => times.map((t) => ({ from: t, to: t }));
  assert.deepEqual(gapsOf([{ from: 0, to: 4000 }, { from: 100_000, to: 104_000 }], 0, 104_000), [{ from: 4080, to: 99_920 }]);
  assert.equal(gapsOf([{ from: 0, to: 50_000 }, { from: 54_000, to: 104_000 }], 0, 104_000).length, 0); // a 25th
  assert.equal(gapsOf(at(0, 400, 800), 0, 800).length, 0); // too short to be worth it
  assert.equal(gapsOf(at(0, minute, 10 * minute), 0, 20 * minute).length, 3);
  assert.deepEqual(gapsOf([{ from: 0, to: 900 }, { from: 100, to: 90_000 }], 0, 90_000), []); // a longer span covers it
});

test("the axis is monotone and can be inverted, whatever is cut", () => {
  const next = random(3);
  for (let i = 0; i < 500; i++) {
    const { busy, end } = someRun(next);
    const gaps = gapsOf(busy, 0, end);
    for (const g of gaps) {
      assert.ok(g.from < g.to && g.from >= 0 && g.to <= end);
      assert.ok(!busy.some((b) => b.from < g.to && b.to > g.from), "a gap has nothing in it");
    }
    const axis = new Axis(0, end, gaps);
    const times = Array.from({ length: 60 }, () => (next() * 1.4 - 0.2) * end).concat(gaps.flatMap((g) => [g.from, g.to]), 0, end).sort((a, b) => a - b);
    let last = -Infinity;
    for (const t of times) {
      const place = axis.placeOf(t);
      assert.ok(place >= last, `${t} is before what precedes it`);
      last = place;
      assert.ok(Math.abs(axis.timeOf(place) - t) <= end * 1e-9 + 1e-6, `${t} comes back as ${axis.timeOf(place)}`);
    }
    assert.equal(axis.placeOf(0), 0);
    assert.ok(Math.abs(axis.placeOf(end) - axis.length) < end * 1e-9 + 1e-6);
    assert.ok(axis.length <= end + 1, "cutting makes it no longer");
  }
});

test("zooming keeps what is at the pointer, and stays inside", () => {
  const next = random(5);
  for (let i = 0; i < 500; i++) {
    const { busy, end } = someRun(next);
    const axis = new Axis(0, end, gapsOf(busy, 0, end));
    let view = whole(axis);
    for (let n = 0; n < 20; n++) {
      const at = next();
      const factor = next() < 0.7 ? 0.7 : 1.5;
      const pointed = view.from + (view.to - view.from) * at;
      const free = { from: pointed - (view.to - view.from) * factor * at, to: pointed + (view.to - view.from) * factor * (1 - at) };
      view = zoom(axis, view, factor, at);
      assert.ok(view.from >= 0 && view.to <= whole(axis).to * 1.000001 && view.to > view.from);
      const inside = free.from >= 0 && free.to <= whole(axis).to && free.to - free.from > 5;
      if (inside) assert.ok(Math.abs(view.from + (view.to - view.from) * at - pointed) < 1e-6 * end + 1e-6);
      const ticks = ticksOf(axis, view, 8);
      assert.ok(ticks.length <= 16, `${ticks.length} ticks`);
      for (const t of ticks) assert.ok(!axis.gaps.some((g) => t > g.from && t < g.to), "no tick in a cut");
    }
    for (let n = 0; n < 60; n++) view = zoom(axis, view, 1.5, next());
    assert.ok(isWhole(axis, view));
  }
  const axis = new Axis(0, 1000, []);
  assert.deepEqual(within(axis, { from: -500, to: 0 }), { from: 0, to: 500 });
  assert.equal(percent(axis, { from: 0, to: 500 }, 250), 50);
  assert.equal(percent(axis, { from: 0, to: 500 }, 900), 105);
});

const second = (s: number) => new Date(s * 1000).toISOString();

// step has the attempts [start, end, outcome]; without an end, one is running.
function step(id: string, created: number, attempts: Array<[number, number?, ("completed" | "failed" | "retrying" | "lost")?]>, more: Partial<TimelinePart> = {}): TimelinePart {
  const last = attempts.at(-1);
  const ended = last?.[2] === "completed" || last?.[2] === "failed";
  return {
    kind: "step", id, name: id.replace(/-.*/, ""), seq: created + 1, createdAt: second(created),
    status: ended ? last[2] as "completed" | "failed" : last && last[1] === undefined ? "running" : "pending",
    ...(ended && { endedAt: second(last[1]!) }),
    ...(attempts.length > 0 && {
      attempts: attempts.map(([from, to, outcome], n) => ({
        seq: n + 1, startedAt: second(from), ...(to !== undefined && { endedAt: second(to), outcome: outcome!, ...(outcome !== "completed" && { code: "busy" }) }),
      })),
    }), ...more,
  };
}

const now = 100_000;
const shapes = (p: TimelinePart) => drawingOf(p, now).segments.map((s) => `${s.shape} ${s.from / 1000}-${s.to / 1000}${s.open ? " open" : ""}`).join(", ");

test("a step is drawn as what it did", () => {
  const table: Array<[TimelinePart, string, string]> = [
    [step("a", 0, []), "queued 0-100 open", "queued"],
    [step("a", 0, [[1]]), "queued 0-1, ran 1-100 open", "running"],
    [step("a", 0, [[1, 2, "completed"]]), "queued 0-1, ran 1-2", "completed"],
    [step("a", 0, [[1, 2, "retrying"]]), "queued 0-1, failed 1-2, backoff 2-100 open", "retrying"],
    [step("a", 0, [[1, 2, "retrying"], [4, 6, "failed"]]), "queued 0-1, failed 1-2, backoff 2-4, failed 4-6", "failed"],
    [step("a", 0, [[1, 2, "lost"], [2]]), "queued 0-1, failed 1-2, ran 2-100 open", "running"],
    [step("a", 5, [[1, 4, "completed"]]), "ran 1-4", "completed"], // recorded by its function
    [step("a", 0, [[50, 60, "retrying"], [70]], { cut: true }), "failed 50-60, backoff 60-70, ran 70-100 open", "running"],
    [step("a", 0, [[1, 2, "retrying"]], { status: "abandoned", endedAt: second(9) }), "queued 0-1, failed 1-2, backoff 2-9", "abandoned"],
    [step("a", 0, [[1]], { status: "abandoned", endedAt: second(9) }), "queued 0-1, ran 1-9", "abandoned"],
    [step("a", 5, [], { childId: "c" }), "ran 5-100 open", "running"],
    [step("a", 5, [], { status: "abandoned", endedAt: second(9) }), "queued 5-9", "abandoned"],
    [step("a", 5, [], { status: "completed", endedAt: second(5) }), "ran 5-5", "completed"],
    [{ kind: "hook", id: "h", status: "active", seq: 1, createdAt: second(3) }, "waiting 3-100 open", "open"],
    [{ kind: "wait", id: "w", status: "completed", seq: 1, createdAt: second(3), endedAt: second(8) }, "waiting 3-8", "over"],
  ];
  for (const [part, want, word] of table) {
    assert.equal(shapes(part), want);
    assert.equal(stateOfPart(part).word, word);
  }
});

test("waiting for somebody, or for the next attempt, is quiet", () => {
  const parts: TimelinePart[] = [
    step("a", 0, [[1, 2, "retrying"], [60, 61, "completed"]]),
    { kind: "hook", id: "h", status: "active", seq: 9, createdAt: second(70), received: [{ seq: 10, at: second(71) }] },
    step("ship", 0, [], { childId: "c" }),
  ];
  assert.deepEqual(gapsOf(busyOf(parts, now), 0, now).map((g) => [Math.round(g.from / 1000), Math.round(g.to / 1000)]), [[2, 60], [61, 70], [71, 100]]);
});

test("equal steps that overlap are one row", () => {
  const items = fold([
    step("item-1", 0, [[0, 4, "completed"]]), step("charge-1", 0, [[0, 1, "completed"]]), step("item-2", 1, [[1, 2, "completed"]]),
    step("item-3", 2, [[2, 9, "failed"]]), step("charge-2", 2, [[2, 3, "completed"]]), step("charge-3", 3, [[3, 4, "completed"]]),
  ], now);
  assert.deepEqual(items.map((i) => i.kind === "name" ? `${i.sum.name} ×${i.sum.count}` : i.kind === "part" ? i.part.id : ""), ["item ×3", "charge-1", "charge-2", "charge-3"]);
  const sum = items[0]!.kind === "name" ? items[0]!.sum : null;
  assert.deepEqual([sum!.p50Ms, sum!.maxMs, sum!.slowest, sum!.failed, sum!.completed, sum!.density[59]], [4000, 7000, "item-3", 1, 2, 1]);
  const many = Array.from({ length: 13 }, (_, i) => step(`poll-${i}`, i, [[i, i + 1, "completed"]]));
  assert.equal(fold(many, now).length, 1, "many, one after the other");
  assert.deepEqual(stretchesOf(sumUp("a", [step("a", 10, [[10, 20, "completed"]])], now)).map((s) => s.count), new Array(60).fill(1));
});

test("folding loses and invents no step", () => {
  const next = random(11);
  for (let i = 0; i < 200; i++) {
    const parts = Array.from({ length: Math.floor(next() * 40) }, (_, n) => {
      const from = next() * 50;
      return step(`${"abc"[Math.floor(next() * 3)]}-${n}`, from, next() < 0.2 ? [] : [[from, from + next() * 9, next() < 0.8 ? "completed" : "failed"]]);
    });
    const found = fold(parts, now).flatMap((item) => item.kind === "name" ? item.parts! : item.kind === "part" ? [item.part] : []);
    assert.deepEqual(new Set(found), new Set(parts));
    assert.equal(found.length, parts.length);
    for (const item of fold(parts, now)) {
      if (item.kind === "name") assert.equal(item.sum.completed + item.sum.failed + item.sum.pending + item.sum.running, item.sum.count);
    }
  }
});

test("rows open into attempts, children and steps of a name", () => {
  const all = { folded: true, only: "", find: "" } as const;
  const retried = step("charge", 0, [[1, 2, "retrying"], [3, 4, "completed"]]);
  const sources = new Map<string, Source>([
    ["r", { parts: [retried, step("ship", 5, [], { childId: "c" }), { kind: "hook", id: "h", status: "active", seq: 9, createdAt: second(6) }] }],
    ["c", { parts: [step("pick", 6, [[6, 7, "failed"]])], cursor: "9" }],
  ]);
  const keys = (opened: string[], choice = all as Parameters<typeof rowsOf>[3]) => rowsOf("r", sources, new Set(opened), choice, now).map((r) => `${r.level} ${r.key}`);
  assert.deepEqual(keys([]), ["1 r:step:charge", "1 r:step:ship", "1 r:hook:h"]);
  assert.deepEqual(keys(["r:step:charge", "r:step:ship"]), [
    "1 r:step:charge", "2 r:step:charge#1", "2 r:step:charge#2", "1 r:step:ship", "2 c:step:pick", "2 c:more", "1 r:hook:h",
  ]);
  assert.deepEqual(keys([], { ...all, only: "failed" }), ["1 r:step:charge"]);
  assert.deepEqual(keys([], { ...all, only: "open", find: "shi" }), ["1 r:step:ship"]);
  const rows = rowsOf("r", sources, new Set(["r:step:ship"]), all, now);
  assert.equal(rows[nextOf(rows, "", fails)]!.key, "r:step:charge");
  assert.equal(rows[nextOf(rows, "r:step:charge", fails)]!.key, "c:step:pick");
  assert.equal(rows[nextOf(rows, "r:step:ship", holdsUp)]!.key, "r:hook:h");
  assert.equal(nextOf(rows, "", () => false), -1);
  assert.equal(labelOf(rows[0]!, now), "charge, step, completed, 2 attempts, began 1 m ago, took 4.0 s");
  assert.equal(labelOf(rows[1]!, now), "ship, child run, running, began 1 m ago");
});

test("children open three deep, and no deeper", () => {
  const sources = new Map<string, Source>(["r1", "r2", "r3", "r4", "r5"].map((id, i) => [id, { parts: [step("next", i, [[i]], { childId: `r${i + 2}` })] }]));
  const opened = new Set(["r1", "r2", "r3", "r4", "r5"].map((id) => `${id}:step:next`));
  assert.deepEqual(rowsOf("r1", sources, opened, { folded: true, only: "", find: "" }, now).map((r) => r.key),
    ["r1:step:next", "r2:step:next", "r3:step:next", "r4:step:next", "r4:step:next:deep"]);
});

test("of a long run, sums are shown, and steps when a sum is opened", () => {
  const sum = sumUp("item", [step("item-1", 0, [[0, 4, "completed"]]), step("item-2", 0, [[0, 9, "failed"]])], now);
  const sources = new Map<string, Source>([["r", { parts: [step("item-9", 0, []), { kind: "wait", id: "w", status: "waiting", seq: 5, createdAt: second(3) }], names: [sum], cursor: "5" }]]);
  const key = sourceOfName("r", "item");
  const rows = () => rowsOf("r", sources, new Set([key]), { folded: true, only: "", find: "" }, now).map((r) => r.key);
  assert.deepEqual(rows(), [key, `${key}:reading`, "r:wait:w"]);
  sources.set(key, { parts: [step("item-2", 0, [[0, 9, "failed"]])], cursor: "7" });
  assert.deepEqual(rows(), [key, "r:step:item-2", `${key}:more`, "r:wait:w"]);
});

test("a hook that was answered is no cancelled one, and says what was decided", () => {
  const hook = { kind: "hook", id: "agree", seq: 1, createdAt: "2026-01-01T00:00:00Z", endedAt: "2026-01-01T00:00:01Z" } as const;
  const received = [{ seq: 2, at: "2026-01-01T00:00:01Z" }];
  for (const status of ["disposed", "abandoned"] as const) assert.deepEqual(stateOfPart({ ...hook, status, received }), { look: "completed", word: "answered" });
  assert.equal(stateOfPart({ ...hook, status: "abandoned" }).look, "cancelled");
  const decided = (outcome: Outcome) => stateOfPart({ ...hook, status: "disposed", received, outcome });
  assert.deepEqual(decided({ decision: "approved", by: ["anna", "bob"] }), { look: "completed", word: "approved by anna, bob" });
  assert.deepEqual(decided({ decision: "approved", by: ["a", "b", "c", "d", "e"] }).word, "approved by a, b, c and 2 more");
  assert.deepEqual(decided({ decision: "rejected" }), { look: "failed", word: "rejected" });
  assert.deepEqual(decided({ decision: "expired" }), { look: "cancelled", word: "expired" });
  assert.equal(stateOfHook({ id: "agree", runId: "r", status: "disposed", webhook: false, createdAt: hook.createdAt, outcome: { decision: "rejected", by: ["zoe"] } }).word, "rejected by zoe");
});

test("of labels that overlap the first one is shown", () => {
  const at = (from: number, to: number) => ({ from, to });
  assert.deepEqual(apart([at(50, 90), at(0, 40), at(30, 60), at(95, 120), at(88, 99)]), [true, true, false, true, false]);
  assert.deepEqual(apart([at(0, 40), at(43, 60), at(44, 60)]), [true, false, true]);
});
