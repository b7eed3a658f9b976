import { test } from "node:test";
import assert from "node:assert/strict";
import { formatCount, sumOf } from "../src/lib/counts";

test("a sum is exact unless one of its parts is not", () => {
  const [few, many] = [{ count: 3, more: false }, { count: 1000, more: true }];
  assert.equal(formatCount(sumOf(few)), "3");
  assert.equal(formatCount(sumOf(few, few)), "6");
  assert.equal(formatCount(sumOf(many)), "1,000+");
  assert.equal(formatCount(sumOf(few, many)), "1,003+");
  assert.equal(formatCount(sumOf()), "0");
});
