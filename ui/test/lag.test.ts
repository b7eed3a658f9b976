import { test } from "node:test";
import assert from "node:assert/strict";
import { Lag } from "../src/lib/lag";

test("a lag is said while it matters", () => {
  const lag = new Lag();
  assert.equal(lag.shown(0), 0, "nothing was read");
  lag.observe("0.4", 0);
  assert.equal(lag.shown(0), 0, "a moment");
  lag.observe("7.2", 1000);
  lag.observe(null, 2000);
  assert.equal(lag.shown(3000), 8, "an answer of the primary says nothing of the lists");
  assert.equal(lag.shown(60_000), 0, "long ago");
  lag.observe("9.9", 70_000);
  lag.observe("1.0", 71_000);
  assert.equal(lag.shown(72_000), 0, "the replica has caught up");
});
