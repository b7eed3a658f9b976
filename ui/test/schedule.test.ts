import { test } from "node:test";
import assert from "node:assert/strict";
import type { Schedule } from "../src/api.gen";
import { putCommand, stateOfSchedule, timingOf } from "../src/lib/schedule";

test("a schedule says when it ticks, as the command line does", () => {
  assert.equal(timingOf({ cron: "30 2 * * *", timeZone: "Europe/Berlin" }), "30 2 * * * Europe/Berlin");
  assert.equal(timingOf({ cron: "@daily" }), "@daily");
  assert.equal(timingOf({ every: "15m" }), "every 15m");
});

test("a pause comes before a tick that waits, and that before the next tick", () => {
  const at = "2026-11-23T02:30:00.000Z";
  const of = (s: Partial<Schedule>) => stateOfSchedule(s as Schedule).word;
  assert.equal(of({ pausedAt: at, waitingAt: at }), "paused");
  assert.equal(of({ waitingAt: at, nextAt: at }), "waiting");
  assert.equal(of({ nextAt: at }), "active");
  assert.equal(of({}), "no more ticks");
});

test("the command that stores a schedule has what was given, quoted", () => {
  const spec = { cron: "0 8 * * MON#2", workflow: "report", attributes: { kind: "very late" }, catchUpWindow: "1h" };
  assert.equal(putCommand("weekly", spec, '{"n":1}'),
    `stepwell schedules put weekly report --cron '0 8 * * MON#2' --catch-up-window 1h --attr 'kind=very late' --input '{"n":1}'`);
});
