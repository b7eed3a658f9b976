import { test } from "node:test";
import assert from "node:assert/strict";
import { ServerTime } from "../src/lib/servertime";
import { random } from "./random";

test("before the first answer there is no time", () => {
  const time = new ServerTime();
  time.observe(NaN, 7);
  assert.equal(time.at(7), null);
});

test("late answers do not set the clock back, and it is never ahead of the server", () => {
  for (let seed = 1; seed <= 50; seed++) {
    const next = random(seed);
    const ahead = Math.floor(next() * 1e9);
    const time = new ServerTime();
    let last = -Infinity;
    for (let own = 0; own < 60_000; own += 700) {
      const late = next() < 0.2 ? next() * 9000 : next() * 50; // one in five is held up for seconds
      time.observe(Math.floor((own + ahead - late) / 1000) * 1000, own);
      const now = time.at(own)!;
      assert.ok(now <= own + ahead, "it is in the future");
      assert.ok(now >= last, "it goes back");
      last = now;
    }
    assert.ok(last > 59_000 + ahead - 1500, `it is ${60_000 + ahead - last} ms behind`);
  }
});
