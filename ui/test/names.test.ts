import { test } from "node:test";
import assert from "node:assert/strict";
import titles from "../../entities/testdata/titles.json";
import type { Event, TimelinePart } from "../src/api.gen";
import { isSdkId, titleOf, titleOfHook, titleOfPart, Titles, titleOfStream } from "../src/lib/names";

const at = "2026-11-22T14:00:00.000Z";
const id = (kind: string, n = 0) => `${kind}_01JD5A8R8D${String(n).padStart(16, "0")}`;

test("workflows and steps are called as their authors named them, by the rule of the server", () => {
  assert.ok(titles.length > 20);
  for (const { name, title } of titles) assert.equal(titleOf(name), title, name);
});

test("IDs of the Workflow SDK are known", () => {
  for (const [text, want] of [
    [id("step"), true], [id("hook"), true], [id("wait"), true], [id("wrun"), false], ["step_1", false], ["agree", false], ["", false],
    [id("step").toLowerCase(), false], [id("step") + "0", false],
  ] as Array<[string, boolean]>) assert.equal(isSdkId(text), want, text);
});

test("hooks are called by their token if their ID says nothing", () => {
  for (const [hook, want] of [
    [{ id: "agree", token: "rh_1" }, "agree"], [{ id: id("hook"), token: "approval:1" }, "approval:1"],
    [{ id: id("hook"), token: "x7Gk", webhook: true }, "webhook"], [{ id: id("hook") }, "hook …000000"],
  ] as Array<[{ id: string }, string]>) assert.equal(titleOfHook(hook), want);
});

test("parts of a timeline are called by what their author wrote", () => {
  const part = (p: Partial<TimelinePart>): TimelinePart => ({ kind: "step", id: "x", status: "pending", seq: 2, createdAt: at, ...p });
  const sleep = (ms: number) => part({ kind: "wait", id: id("wait"), resumeAt: new Date(Date.parse(at) + ms).toISOString() });
  for (const [p, want] of [
    [part({ name: "step//./workflows/order//chargeCard", id: id("step") }), "chargeCard"], [part({ name: "charge" }), "charge"],
    [part({ kind: "hook", id: "agree" }), "agree"], [part({ kind: "hook", id: id("hook"), name: "approval:1" }), "approval:1"],
    [part({ kind: "hook", id: id("hook") }), "hook …000000"], [part({ kind: "wait", id: "nap" }), "nap"],
    [part({ kind: "wait", id: id("wait") }), "wait …000000"],
    [sleep(4970), "sleep 5 s"], [sleep(-3), "sleep 0 ms"], [sleep(250), "sleep 250 ms"], [sleep(86_399_960), "sleep 1 d"], [sleep(90_000), "sleep 1 m 30 s"],
  ] as Array<[TimelinePart, string]>) assert.equal(titleOfPart(p), want);
});

test("streams are called by their namespace", () => {
  const of = id("strm");
  for (const [name, want] of [
    ["letters", "letters"], [`${of}_user`, "default"], [`${of}_user_bG9ncw`, "logs"], [`${of}_user_w6nigqw_`, "é€?"], [`${of}_user_x`, `${of}_user_x`],
    [`${of}_user__w`, `${of}_user__w`], [of, of],
  ] as Array<[string, string]>) assert.equal(titleOfStream(name), want, name);
});

test("a log learns what parts are called, and forgets the oldest", () => {
  const event = (type: Event["type"], correlationId: string, data: object): Event =>
    ({ runId: "wrun_1", seq: 1, id: "evnt_1", type, correlationId, createdAt: at, data } as Event);
  const known = new Titles();
  known.learn([
    event("step_created", id("step"), { stepName: "step//./a//charge" }), event("step_completed", id("step"), {}),
    event("hook_created", id("hook"), { token: "approval:1" }), event("hook_received", id("hook"), {}),
    event("wait_created", id("wait"), { resumeAt: "2026-11-22T14:00:05.000Z" }), event("step_created", "own", { stepName: "step//./a//b" }),
  ]);
  assert.deepEqual([id("step"), id("hook"), id("wait"), "own", id("step", 7)].map((i) => known.of(i)),
    ["charge", "approval:1", "sleep 5 s", "own", "step …000007"]);
  known.learn(Array.from({ length: 10_000 }, (_, n) => event("step_created", id("step", n + 1), { stepName: "step//./a//b" })));
  assert.equal(known.of(id("step")), "step …000000");
});
