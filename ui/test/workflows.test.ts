import { test } from "node:test";
import assert from "node:assert/strict";
import type { RunPoint, Step } from "../src/api.gen";
import { alignSteps, byName, diffJson, isDifferent, timeOfStep } from "../src/lib/diff";
import { parseFilter, queryOf, commandOf } from "../src/lib/filter";
import { parseJson, type JsonValue } from "../src/lib/jsontext";
import { barsOf, beganAfter, formatShare, isRising, spanOf, startOf, stepLines } from "../src/lib/trend";
import { random } from "./random";

const diff = (a: string, b: string) =>
  diffJson(parseJson(a), parseJson(b)).map((r) => `${" ".repeat(r.level)}${r.label}:${r.kind}:${r.a ?? ""}:${r.b ?? ""}`);

test("differences of JSON are found where they are", () => {
  assert.deepEqual(diff('{"a":1,"b":[1,2]}', '{"b":[1,2],"a":1}'), []);
  assert.deepEqual(diff('"\\u0041"', '"A"'), []);
  assert.deepEqual(diff('{"a":9007199254740993,"b":1.0}', '{"a":9007199254740992,"b":1}'),
    [":parent::", " a:changed:9007199254740993:9007199254740992", " b:changed:1.0:1"]);
  assert.deepEqual(diff('{"a":{"x":1,"y":2},"c":1}', '{"a":{"x":1,"z":[]}}'),
    [":parent::", " a:parent::", "  y:removed:2:", "  z:added::[]", " c:removed:1:"]);
  assert.deepEqual(diff("[1,2,3,4]", "[1,9,2,3,4]"), [":parent::", " 1:added::9"]);
  assert.deepEqual(diff("[1,2,3]", "[1,7,3]"), [":parent::", " 1:changed:2:7"]);
  assert.deepEqual(diff('{"a":[]}', '{"a":{}}'), [":parent::", " a:changed:[]:{}"]);
  assert.deepEqual(diff('{"k":1,"k":2}', '{"k":1}'), [":parent::", " k (2):removed:2:"]);
});

test("equal values have no difference, and one change is found", () => {
  const next = random(11);
  const make = (depth: number): JsonValue => {
    const n = next();
    if (depth > 3 || n < 0.3) return { kind: "number", text: String(Math.floor(next() * 9)) };
    if (n < 0.6) return { kind: "array", items: Array.from({ length: 1 + Math.floor(next() * 4) }, () => make(depth + 1)) };
    return { kind: "object", entries: ["a", "b", "c"].slice(0, 1 + Math.floor(next() * 3)).map((key) => ({ key, keyText: `"${key}"`, value: make(depth + 1) })) };
  };
  const change = (v: JsonValue): JsonValue => {
    if (v.kind === "array") return { kind: "array", items: v.items.map((x, i) => (i === v.items.length - 1 ? change(x) : x)) };
    if (v.kind === "object") return { kind: "object", entries: v.entries.map((e, i) => (i === 0 ? { ...e, value: change(e.value) } : e)) };
    return { kind: "literal", text: "null" };
  };
  for (let i = 0; i < 500; i++) {
    const v = make(0);
    assert.deepEqual(diffJson(v, structuredClone(v)), []);
    const rows = diffJson(v, change(v)).filter((r) => r.kind !== "parent");
    assert.equal(rows.length, 1);
    assert.equal(rows[0]!.b, "null");
  }
});

const step = (id: string, name: string, more: Partial<Step> = {}): Step => ({
  id, runId: "r", name, status: "completed", attempt: 1, createdAt: "2026-11-22T14:00:00.000Z", startedAt: "2026-11-22T14:00:00.000Z",
  completedAt: "2026-11-22T14:00:01.000Z", ...more,
});

test("steps are aligned by ID, then by name and number", () => {
  const a = [step("1", "charge"), step("2", "item"), step("3", "item"), step("9", "ship")];
  const b = [step("0", "check"), step("1", "charge"), step("7", "item"), step("8", "pack"), step("3", "item"), step("6", "item")];
  const shown = alignSteps(a, b).map((p) => `${p.name} ${p.a?.id ?? "-"} ${p.b?.id ?? "-"}`);
  assert.deepEqual(shown, ["check - 0", "charge 1 1", "item 2 7", "pack - 8", "item 3 3", "item - 6", "ship 9 -"]);
  assert.deepEqual(byName(a, b).map((l) => [l.name, l.a, l.b, l.timeA]), [
    ["charge", 1, 1, 1000], ["check", 0, 1, 0], ["item", 2, 3, 2000], ["pack", 0, 1, 0], ["ship", 1, 0, 1000],
  ]);
});

test("steps that differ only a little are alike", () => {
  const slow = (ms: number) => step("1", "s", { completedAt: new Date(Date.parse("2026-11-22T14:00:00Z") + ms).toISOString() });
  assert.equal(isDifferent({ name: "s", a: slow(1000), b: slow(1150) }), false);
  assert.equal(isDifferent({ name: "s", a: slow(1000), b: slow(1500) }), true);
  assert.equal(isDifferent({ name: "s", a: slow(10), b: slow(90) }), false);
  assert.equal(isDifferent({ name: "s", a: slow(10), b: { ...slow(10), attempt: 2 } }), true);
  assert.equal(isDifferent({ name: "s", a: slow(10) }), true);
  const { completedAt: _, ...open } = slow(10);
  assert.ok(Number.isNaN(timeOfStep(open)));
});

const point = (at: string, created: number, failed: number): RunPoint => ({ at, created, started: 0, completed: 0, failed, cancelled: 0 });

test("bars cover the whole span", () => {
  const day = spanOf("24h");
  const from = startOf(day, Date.parse("2026-11-22T14:20:00Z"));
  assert.equal(new Date(from).toISOString(), "2026-11-21T15:00:00.000Z");
  const bars = barsOf([point("2026-11-21T15:00:00Z", 2, 1), point("2026-11-22T14:00:00Z", 1, 3), point("2026-11-22T15:00:00Z", 9, 9)], day, from);
  assert.equal(bars.length, 24);
  assert.deepEqual([bars[0], bars[1], bars[23]], [{ all: 2, failed: 1 }, { all: 0, failed: 0 }, { all: 3, failed: 3 }]);
  assert.equal(spanOf("x").name, "24h");
});

test("shares are short", () => {
  const table: Array<[number, number, string]> = [[0, 0, ""], [0, 5, "0 %"], [1, 2000, "< 0.1 %"], [31, 12_408, "0.2 %"], [44, 311, "14 %"], [5, 5, "100 %"]];
  for (const [part, whole, want] of table) assert.equal(formatShare(part, whole), want);
});

test("failures rise if they become twice as frequent", () => {
  const bars = (...failed: number[]) => failed.map((f) => ({ all: 10, failed: f }));
  assert.equal(isRising(bars(1, 1, 1, 4)), true);
  assert.equal(isRising(bars(2, 2, 2, 3)), false);
  assert.equal(isRising(bars(0, 0, 0, 2)), false);
  assert.equal(isRising(bars(4, 4, 4, 0)), false);
});

test("steps are in the order of a run, with their part of the time", () => {
  const s = (name: string, completed: number, p50: number, retried = 0) =>
    ({ workflow: "order", name, completed, failed: 0, cancelled: 0, retried, tookMs: { p50, p95: p50, p99: p50 } });
  const lines = stepLines([s("ship", 10, 10), s("charge", 10, 30, 5), s("audit", 0, 0)], ["charge", "ship", "charge"]);
  assert.deepEqual(lines.map((l) => [l.name, l.attempts, l.share]), [["charge", 1.5, 0.75], ["ship", 1, 0.25], ["audit", NaN, 0]]);
});

test("what begins soon after a deployment was changed says so", () => {
  const releases = [{ id: "shop", updatedAt: "2026-11-22T06:07:00.000Z" }];
  const since = "2026-11-21T14:00:00.000Z";
  assert.equal(beganAfter("2026-11-22T06:10:00.000Z", "shop", releases, since), 180_000);
  assert.equal(beganAfter("2026-11-22T06:06:00.000Z", "shop", releases, since), null);
  assert.equal(beganAfter("2026-11-22T06:40:00.000Z", "shop", releases, since), null);
  assert.equal(beganAfter("2026-11-22T06:10:00.000Z", "other", releases, since), null);
  assert.equal(beganAfter("2026-11-22T06:10:00.000Z", "shop", releases, "2026-11-22T06:08:00.000Z"), null);
});

test("runs are filtered by the code of their error", () => {
  const { filter } = parseFilter("workflow:refund error:card_declined");
  assert.deepEqual(queryOf(filter, 0), { workflow: "refund", errorCode: "card_declined" });
  assert.equal(commandOf(filter), "stepwell runs list --workflow refund --error-code card_declined");
});
