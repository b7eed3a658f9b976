import { test } from "node:test";
import assert from "node:assert/strict";
import { heatOf, levelOf } from "../src/lib/heat";
import { logScale } from "../src/lib/logscale";

test("a scale of durations is between round ones, and as long for ten times as much", () => {
  const minute = 60_000, hour = 60 * minute;
  const table: Array<[Array<number | null>, number[]]> = [
    [[3, null, 33 * minute], [1, 10, 100, 1000, 10_000, minute, 10 * minute, hour]],
    [[20, 80], [10, 100]],
    [[100], [100, 1000]],
    [[0], [1, 10]],
    [[], [1, 10]],
    [[1e15], [1000 * 24 * hour, 10_000 * 24 * hour]],
  ];
  for (const [values, want] of table) assert.deepEqual(logScale(values).ticks, want);
  const { placeOf } = logScale([1, 9000]);
  assert.deepEqual([0, 1, 10, 100, 1000, 10_000, 1e9].map((ms) => Math.round(placeOf(ms) * 100)), [0, 0, 25, 50, 75, 100, 100]);
  assert.equal(logScale([1e15]).placeOf(1e15), 1);
});

test("hours are those of the zone, also when summer time ends", () => {
  const start = Date.parse("2026-10-24T22:00:00Z"); // midnight in Berlin
  const points = [["2026-10-24T22:00:00Z", 1], ["2026-10-25T00:00:00Z", 2], ["2026-10-25T01:00:00Z", 3], ["2026-10-25T23:00:00Z", 4], ["2026-10-24T21:00:00Z", 9]]
    .map(([at, count]) => ({ at: at as string, count: count as number }));
  const [last, first, ...none] = heatOf(points, start, 26, "Europe/Berlin");
  assert.deepEqual([none.length, first!.date, last!.date], [0, "2026-10-25", "2026-10-26"]);
  assert.deepEqual([first!.hours[0]!.count, first!.hours[2]!.count, first!.hours[3]!.count], [1, 5, 0]);
  assert.equal(first!.hours[2]!.to - first!.hours[2]!.from, 2 * 3_600_000);
  assert.deepEqual([last!.hours[0]!.count, last!.hours[1]], [4, undefined]);
  assert.equal(heatOf([{ at: "2026-10-25T10:30:00Z", count: 7 }], Date.parse("2026-10-25T10:00:00Z"), 1, "UTC")[0]!.hours[10]!.count, 7);
});

test("shades go by the largest count", () => {
  assert.deepEqual([0, 1, 25, 26, 99, 100].map((n) => levelOf(n, 100)), [0, 1, 1, 2, 4, 4]);
  assert.equal(levelOf(1, 1_000_000), 1);
});
