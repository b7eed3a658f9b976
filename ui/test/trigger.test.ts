import { test } from "node:test";
import assert from "node:assert/strict";
import type { Collection, TriggerOn, TriggerSpec } from "../src/api.gen";
import { keyOf, ruleOf, stateOfCollection } from "../src/lib/collection";
import { conditionOf, onOf, putCommand, waitsFor, waitsOf } from "../src/lib/trigger";

test("a trigger says what it waits for, as the command line does", () => {
  assert.equal(waitsFor({ signal: { name: "order.paid" } }), "signal order.paid");
  assert.equal(waitsFor({ webhook: { verify: "github", secret: "s" } }), "webhook github");
  assert.equal(waitsFor({ webhook: {} }), "webhook");
  assert.equal(waitsFor({ runEnded: { workflow: "order", statuses: ["failed", "cancelled"] } }), "end of order: failed, cancelled");
});

test("the condition is that of the event; a reader who may not see it sees none", () => {
  assert.equal(conditionOf({ webhook: { condition: "data.ok" } }), "data.ok");
  assert.equal(conditionOf({ signal: { name: "a" } }), "");
});

test("the command that stores a trigger has what was given, quoted", () => {
  const spec: TriggerSpec = {
    on: { signal: { name: "order.paid", condition: "data.amount > 100" } },
    start: {
      workflow: "receipt", key: "order-${data.order}", limits: [{ name: "mail", key: "${data.customer}", cost: 2 }], priority: "-5m",
      batch: { size: 3, wait: "1m" },
    },
  };
  assert.equal(putCommand("paid", spec, '{"n":1}'),
    `stepwell triggers put paid receipt --signal order.paid --condition 'data.amount > 100' --key 'order-\${data.order}' ` +
    `--limit 'mail=\${data.customer}' --cost mail=2 --priority=-5m --batch size=3,wait=1m --input '{"n":1}'`);
  assert.equal(putCommand("after", { on: { runEnded: { workflow: "a", statuses: ["failed", "completed"] } }, start: { workflow: "b" } }, ""),
    "stepwell triggers put after b --run-ended a --status failed,completed");
});

test("a trigger with a URL says in the form and in the command how long senders wait", () => {
  assert.equal(putCommand("quote", { on: { webhook: { verify: "github", secret: "gh", respond: "10s" } }, start: { workflow: "price" } }, ""),
    "stepwell triggers put quote price --webhook --verify github --secret gh --respond 10s");
});

test("a form that is saved unchanged changes nothing", () => {
  const all: TriggerOn[] = [
    { signal: { name: "order.paid", condition: "data.ok" } }, { signal: { name: "order.paid" } },
    { webhook: { verify: "github", secret: "gh", respond: "10s", condition: "data.ok" } }, { webhook: { respond: "1m" } }, { webhook: {} },
    { runEnded: { workflow: "order", statuses: ["failed", "cancelled"], condition: "data.ok" } }, { runEnded: { workflow: "order" } },
  ];
  for (const on of all) assert.deepEqual(onOf(waitsOf(on)), on);
});

test("a collection says how it collects, and whether it is due", () => {
  const at = "2026-11-23T02:30:00.000Z";
  const of = (c: Partial<Collection>) => ({ dueAt: at, ...c }) as Collection;
  assert.equal(ruleOf(of({ debounce: { quiet: "10s", max: "1m", keep: "last" } })), "debounce 10s, max 1m, keep last");
  assert.equal(keyOf(of({ batch: { size: 3, wait: "1m", key: "c7" } })), "c7");
  assert.equal(stateOfCollection(of({}), Date.parse(at) - 1).word, "collecting");
  assert.equal(stateOfCollection(of({}), Date.parse(at)).word, "due");
});
