import { test } from "node:test";
import assert from "node:assert/strict";
import { boundsOf, policyCommand, setCommand, useText } from "../src/lib/limit";

test("a limit says what it bounds", () => {
  assert.equal(boundsOf({ perKey: 5, total: 2000 }), "5 per key · 2,000 in all");
  assert.equal(boundsOf({ rate: { limit: 100, per: "1m", burst: 10 } }), "100 in 1m, 10 at once");
  assert.equal(boundsOf({ rate: { limit: 100, per: "1m", burst: 1 } }), "100 in 1m");
});

test("commands set what the forms say", () => {
  assert.equal(setCommand("mail out", { rate: { limit: 9, per: "1s" }, fair: true, onFull: "reject", paused: true }),
    "stepwell limits set 'mail out' --rate 9/1s --fair --on-full reject --paused");
  assert.equal(setCommand("stripe", { perKey: 1, onFull: "wait" }), "stepwell limits set stripe --per-key 1");
  const uses = [{ name: "gpu", key: 'attributes["user id"]', tenant: "attributes.org", cost: 2 }, { name: "all" }];
  assert.equal(policyCommand("render", uses, "-5m"),
    `stepwell policies set render --limit 'gpu=attributes["user id"]' --limit all --tenant gpu=attributes.org --cost gpu=2 --priority=-5m`);
  assert.deepEqual(uses.map(useText), ['gpu=attributes["user id"] by attributes.org x2', "all"]);
});
