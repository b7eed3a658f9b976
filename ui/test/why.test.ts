import { test } from "node:test";
import assert from "node:assert/strict";
import type { Chunk, Explanation, Message, Reason, ReasonKind, Run } from "../src/api.gen";
import { bytesOf, Tail } from "../src/lib/chunks";
import { cannotRetry, errorOf, stateOfMessage } from "../src/lib/message";
import { lookOf } from "../src/lib/status";
import { commandsOf, needsNobody, nextOf, stateOf } from "../src/lib/why";

const reason = (kind: ReasonKind, more: Partial<Reason> = {}): Reason => ({ kind, sentence: "", remedies: [], commands: [], ...more });

const explanation = (reasons: Reason[], next?: Explanation["next"]): Explanation =>
  ({ runId: "wrun_1", verdict: "working", at: "2026-11-22T14:00:00.000Z", lastSeq: 9, reasons, ...(next && { next }) });

test("only failures and what waits for somebody need a person", () => {
  for (const [kinds, want] of [
    [["called"], true], [["child", "wait"], true], [["called", "hook"], false], [["step_backoff"], false], [["parked", "wait"], false],
  ] as Array<[ReasonKind[], boolean]>) {
    assert.equal(needsNobody(explanation(kinds.map((k) => reason(k)))), want, kinds.join());
  }
  assert.equal(lookOf("parked"), "failed");
  assert.equal(lookOf("moon_phase" as ReasonKind), "pending");
});

test("what comes next is named", () => {
  const at = "2026-11-22T14:00:07.000Z";
  const charge = { stepId: "charge" };
  for (const [r, next, want] of [
    [reason("step_backoff", { ...charge, attempt: 3, maxAttempts: 5 }), { at, kind: "step_backoff", ...charge }, "step charge, attempt 3 of 5"],
    [reason("wait", { waitId: "nap" }), { at, kind: "wait", waitId: "nap" }, "the sleep nap is over"],
    [reason("function_refuses"), { at, kind: "function_refuses" }, "the call is repeated"],
    [reason("unreachable", charge), { at, kind: "unreachable", ...charge }, "the call of step charge is repeated"],
    [reason("hook"), undefined, ""],
  ] as Array<[Reason, Explanation["next"], string]>) {
    assert.equal(nextOf(explanation([r], next)), want);
  }
});

test("a command that helps twice is listed once", () => {
  const again = ["stepwell messages retry msg_1", "stepwell messages discard msg_1"];
  const e = explanation([reason("parked", { commands: again }), reason("signal", { commands: ["stepwell signals send a --data JSON", again[0]!] })]);
  assert.deepEqual(commandsOf(e).split("\n"), ["stepwell why wrun_1", ...again, "stepwell signals send a --data JSON"]);
});

test("messages have a state, and say why they cannot be retried", () => {
  const at = "2026-11-22T14:00:00.000Z";
  const now = Date.parse(at);
  const message = (more: Partial<Message>): Message => ({
    id: "msg_1", topic: "t", deploymentId: "shop", state: "waiting", deliveryCount: 0, createdAt: at, dueAt: at, ...more,
  });
  for (const [m, word, retry] of [
    [message({}), "due", false], [message({ dueAt: "2026-11-22T15:00:00.000Z" }), "delayed", false],
    [message({ deliveryCount: 2, lastError: "answered 500" }), "retrying", true], [message({ state: "leased", lastError: "x" }), "being delivered", false],
    [message({ state: "parked" }), "parked", true],
  ] as Array<[Message, string, boolean]>) {
    assert.equal(stateOfMessage(m, now).word, word);
    assert.equal(cannotRetry(m) === "", retry, word);
  }
  for (const [lastError, want] of [['{"message":"the bank is busy","code":"busy"}', "busy: the bank is busy"], ["answered 500", "answered 500"], ["", ""],
    [String.raw`"<b> \u05dc\nline"`, "<b> ל\nline"], ['{"details":1}', '{"details":1}'], ["null", "null"]] as const) {
    assert.equal(errorOf(message({ lastError })), want);
  }
});

test("the end of a stream is kept, and its characters stay whole", () => {
  const tail = new Tail(8);
  tail.add([{ index: 0, text: "0123456789" }, { index: 1, text: "ab" }]);
  tail.add([{ index: 2, base64: "w6k=" }]); // é
  assert.equal(new TextDecoder().decode(tail.bytes()), "6789abé");
  assert.deepEqual([tail.size, tail.left], [8, 6]);
  let written = "";
  for (let i = 0; i < 20; i++) {
    written += `${i}é`;
    tail.add([{ index: 3 + i, text: `${i}é` }]);
    const text = new TextDecoder().decode(tail.bytes()); // the page looks at it after each chunk
    assert.ok(text.length >= 5 && ("6789abé" + written).endsWith(text), text);
  }
  const parts = new Tail(100);
  parts.add([{ index: 0, base64: "ww==" }, { index: 1, base64: "qQ==" }]); // é in two chunks
  assert.equal(new TextDecoder().decode(parts.bytes()), "é");
  assert.deepEqual([...bytesOf({ index: 0, base64: "/wA=" })], [255, 0]);
});

test("decoded chunks are text where they are text, and else lines of JSON", () => {
  for (const [chunks, want] of [
    [[{ value: "line 1: <b>" }, { value: "é</b>\n" }], "line 1: <b>é</b>\n"],
    [[{ value: "The" }, { value: { at: [1, null] } }, { value: 7 }, { value: null }, { value: "end" }], 'The\n{"at":[1,null]}\n7\nnull\nend'],
    [[{ encoding: "encrypted", text: "encr!" }, { value: "a" }, { encoding: "encrypted", base64: "/w==" }], "(encrypted)\na\n(encrypted)\n"],
    [[{ encoding: "opaque", text: "" }, { encoding: "opaque", base64: "w6k=" }, { value: {} }], "é\n{}\n"],
    [[{ text: "as it " }, { text: "was" }], "as it was"],
  ] as Array<[Array<Partial<Chunk>>, string]>) {
    const tail = new Tail(1000);
    chunks.forEach((c, index) => tail.add([{ index, ...c }]));
    assert.equal(new TextDecoder().decode(tail.bytes()), want);
    assert.equal(tail.encrypted, chunks.filter((c) => c.encoding === "encrypted").length);
  }
  const large = new Tail(1000);
  for (let i = 0; i < 5000; i++) large.add([{ index: i, value: { i, text: "é".repeat(50) } }]);
  assert.ok(large.size <= 1000 && large.left > 500_000);
});

test("the state of a run is that of its explanation until it ends", () => {
  const now = Date.parse("2026-11-22T14:00:00.000Z");
  const run = { status: "running" } as Run;
  for (const [r, verdict, kind, word, look] of [
    [run, "blocked", "parked", "blocked", "failed"],
    [{ ...run, blocked: { code: "a", attempts: 9 } }, "blocked", "parked", "blocked", "failed"],
    [run, "retrying", "step_backoff", "retrying", "retrying"],
    [run, "waiting", "approval", "waiting", "waiting"],
    [{ status: "pending" }, "working", "called", "running", "running"],
    [{ ...run, forcedAt: "2026-11-22T14:00:07.000Z" }, "working", "cancelling", "cancelling", "running"],
    [{ status: "completed" }, "waiting", "wait", "completed", "completed"],
  ] as Array<[Run, Explanation["verdict"], ReasonKind, string, string]>) {
    assert.deepEqual(stateOf(r, { ...explanation([reason(kind)]), verdict }, now), { look, word });
  }
  assert.deepEqual(stateOf(run, null, now), { look: "running", word: "running" });
});
