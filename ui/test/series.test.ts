import assert from "node:assert/strict";
import test from "node:test";
import { largest, niceMax, ranges, spread, stack, windowOf } from "../src/lib/series";

test("the last interval of a window has now in it", () => {
  const now = Date.parse("2026-11-22T14:02:11Z");
  for (const r of ranges) {
    const w = windowOf(r, now);
    const last = w.start + (w.count - 1) * w.stepMs;
    assert.ok(last <= now && now < last + w.stepMs, r.name);
    assert.equal(w.start % w.stepMs, 0, r.name); // as the server begins its intervals
    assert.equal(w.count * w.stepMs, r.ms, r.name);
  }
});

test("points are put into their intervals", () => {
  const w = { start: Date.parse("2026-11-22T14:00:00Z"), stepMs: 60_000, count: 3 };
  const points = [{ at: "2026-11-22T13:59:00Z", n: 9 }, { at: "2026-11-22T14:01:00.000Z", n: 4 }, { at: "2026-11-22T14:03:00Z", n: 9 }];
  assert.deepEqual(spread(w, points, (p) => p.n, 0), [0, 4, 0]);
  assert.deepEqual(spread(w, points, (p) => p.n, null), [null, 4, null]);
});

test("the largest series are kept, the others added up", () => {
  const s = (name: string, ...values: number[]) => ({ name, values });
  assert.deepEqual(largest([s("a", 1, 0), s("b", 0, 0), s("c", 5, 5), s("d", 2, 3), s("e", 0, 4)], 2),
    [s("c", 5, 5), s("d", 2, 3), s("others", 1, 4)]);
  assert.deepEqual(largest([s("a", 1), s("b", 2)], 2), [s("b", 2), s("a", 1)]);
});

test("axes end at round numbers", () => {
  for (const [value, want] of [[0, 1], [1, 1], [3, 3], [5, 6], [7, 8], [9, 10], [101, 200], [0.3, 1], [NaN, 1]] as const) {
    assert.equal(niceMax(value), want, String(value));
  }
});

test("bars stand on each other", () => {
  assert.deepEqual(stack([[1, 2], [3, null]]), [[{ from: 0, to: 1 }, { from: 0, to: 2 }], [{ from: 1, to: 4 }, { from: 2, to: 2 }]]);
});
