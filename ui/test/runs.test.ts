import { test } from "node:test";
import assert from "node:assert/strict";
import type { ReasonKind, Run, RunReason, Verdict } from "../src/api.gen";
import { dueAt, listOf, Pending, rowsOf, shortestPause, withChanges } from "../src/lib/runlist";
import { stateOfRun, whenOf } from "../src/lib/status";

const now = Date.parse("2026-11-22T14:00:00.000Z");
const later = "2026-11-22T15:00:00.000Z";
const before = "2026-11-22T13:00:00.000Z";

const reason = (verdict: Verdict, kind: ReasonKind, more: Partial<RunReason> = {}): RunReason => ({ verdict, kind, summary: "s", ...more });
const run = (more: Partial<Run>): Run => ({
  id: "wrun_1", workflow: "w", deployment: "d", driver: "server", status: "running", attributes: {}, createdAt: before, lastSeq: 4, ...more,
});

test("a row has the state of its reason until the run ends", () => {
  for (const [r, want] of [
    [run({ reason: reason("stranded", "stranded") }), { look: "failed", word: "stranded" }],
    [run({ reason: reason("waiting", "approval") }), { look: "waiting", word: "waiting" }],
    [run({ reason: reason("retrying", "step_backoff") }), { look: "retrying", word: "retrying" }],
    [run({ reason: reason("working", "step_running") }), { look: "running", word: "running" }],
    [run({ reason: reason("working", "queued"), status: "pending" }), { look: "pending", word: "pending" }],
    [run({ reason: reason("waiting", "wait"), status: "failed" }), { look: "failed", word: "failed" }],
    [run({}), { look: "running", word: "running" }],
  ] as const) assert.deepEqual(stateOfRun(r, now), want);
});

test("a row says when it goes on, or for how long it has waited", () => {
  for (const [r, want] of [
    [reason("retrying", "function_fails", { at: later, since: before }), { word: "again", at: later, as: "age" }],
    [reason("waiting", "wait", { at: later, since: before }), { word: "until", at: later, as: "clock" }],
    [reason("waiting", "rate", { at: later }), { word: "goes on", at: later, as: "age" }],
    [reason("waiting", "approval", { since: before }), { word: "for", at: before, as: "duration" }],
    [reason("working", "queued"), null],
  ] as const) assert.deepEqual(whenOf(r), want);
});

test("reasons are read anew when they may have changed without an event", () => {
  const of = (...reasons: Array<RunReason | undefined>) => dueAt(reasons.map((r) => run(r ? { reason: r } : {})), now);
  assert.equal(of(), Infinity);
  assert.equal(of(reason("waiting", "approval"), undefined), Infinity);
  assert.equal(of(reason("waiting", "approval"), reason("waiting", "wait", { at: later })), Date.parse(later) + 1000);
  assert.equal(of(reason("working", "called", { until: later })), Date.parse(later) + 1000);
  assert.equal(of(reason("working", "queued"), reason("waiting", "wait", { at: later })), now + 15_000);
  assert.equal(of(reason("blocked", "parked")), now + 60_000);
  assert.equal(dueAt([run({ status: "completed", reason: reason("working", "queued") })], now), Infinity);
  assert.deepEqual([0, 100, 101, 1000].map(shortestPause), [5000, 5000, 10_000, 50_000]);
});

test("a message leaves a run its reason until it ends", () => {
  const list = listOf({ data: [run({ reason: reason("waiting", "wait") })] }, "created");
  const next = withChanges(list, { runs: [run({ lastSeq: 5 })], gone: [] });
  assert.equal(rowsOf(next)[0]?.reason?.kind, "wait");
  assert.equal(rowsOf(withChanges(next, { runs: [run({ lastSeq: 6, status: "completed" })], gone: [] }))[0]?.reason, undefined);
});

test("a page that is read is as new as what came meanwhile, and another list has none of it", async () => {
  const change = (id: string) => ({ runs: [run({ id })], gone: [] });
  const read = async (pending: Pending, meanwhile: () => void) => {
    let ids: string[] = [];
    await pending.read(async () => meanwhile(), (_, since) => (ids = since.flatMap((m) => m.runs.map((r) => r.id))));
    return ids;
  };
  const pending = new Pending("all");
  pending.note(change("before"));
  assert.deepEqual(await read(pending, () => pending.note(change("meanwhile"))), ["meanwhile"]);
  assert.deepEqual(await read(pending, () => {}), []);
  const other = new Pending("failed");
  assert.deepEqual(await read(other, () => pending.note(change("of all"))), []);
});
