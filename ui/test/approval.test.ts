import { test } from "node:test";
import assert from "node:assert/strict";
import type { Approval } from "../src/api.gen";
import { approvalsIn, refusalOf, rolesIn, voteOf, whoMay } from "../src/lib/approval";
import { writeJson } from "../src/lib/jsontext";
import { Problem } from "../src/lib/problem";

const of = (by?: string[]): Approval => ({ runId: "wrun_1", hookId: "agree", workflow: "w", needed: 1, distinctKeys: false, votes: [], createdAt: "", by });

test("who may vote is said in words", () => {
  for (const [by, want] of [
    [undefined, "everybody with a key"], [["anna"], "anna"], [["anna", "role:finance"], "anna or the role finance"], [["a", "b", "role:c"], "a, b or the role c"],
  ] as const) assert.equal(whoMay(of(by && [...by])), want);
  assert.deepEqual(rolesIn(of(["anna", "role:finance"])), ["finance"]);
});

test("a vote has what was given, with numbers as they were typed", () => {
  assert.equal(voteOf({ decision: "reject", as: "", roles: [], comment: "", form: "" }), '{"payload":{"decision":"reject"}}');
  assert.equal(voteOf({ decision: "approve", as: "anna", roles: ["finance"], comment: "fine", form: '{"limit":9007199254740993.50}' }),
    '{"payload":{"form":{"limit":9007199254740993.50},"decision":"approve","as":"anna","roles":["finance"],"comment":"fine"}}');
});

test("schemas keep their numbers", () => {
  const { data } = approvalsIn('{"data":[{"hookId":"a","form":{"const":9007199254740993}},{"hookId":"b"}]}');
  assert.deepEqual(data.map((a) => a.schema && writeJson(a.schema, false)), ['{"const":9007199254740993}', undefined]);
});

test("a refused vote says what is wrong in plain words", () => {
  const said = (code: string, as: string) => refusalOf(new Problem(403, code, "…"), of(["anna", "role:finance"]), as);
  assert.deepEqual(said("not_an_approver", ""), { name: "This approval is for anna or the role finance: give your name." });
  assert.deepEqual(said("not_an_approver", "bob"), { name: "bob may not vote. This approval is for anna or the role finance." });
  assert.deepEqual(said("has_voted", "anna"), { name: "anna has voted on this already, and a vote stands." });
  assert.match(said("key_has_voted", "anna")?.name ?? "", /another key must vote/);
  for (const code of ["approval_over", "hook_not_found", "run_ended"]) assert.match(said(code, "anna")?.over ?? "", /does not count/);
  assert.equal(said("database_unavailable", "anna"), null);
  const found = [{ path: "/limit", message: "too small" }];
  assert.deepEqual(refusalOf(new Problem(422, "schema_violated", "…", { violations: found }), of(), "anna"), { violations: found });
});
