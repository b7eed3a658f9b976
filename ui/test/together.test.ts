import { test } from "node:test";
import assert from "node:assert/strict";
import { groupsOf, Lines, queryOfReads } from "../src/lib/together";

test("the query of reads says what each read says", () => {
  const paths = ["/v1/runs?q=a%26b&limit=1", "/v1/runs/a%2Fb?x=1+2#no", "/v1/attention", "/v1/runs?attribute.x=%3D%25"];
  assert.deepEqual(new URLSearchParams(queryOfReads(paths)).getAll("read"), paths);
  assert.equal(queryOfReads(["/v1/runs?limit=1"]), "read=/v1/runs?limit=1");
});

test("reads are in few requests that servers take", () => {
  const paths = (n: number, length: number) => Array.from({ length: n }, (_, i) => ({ path: `/v1/${i}`.padEnd(length, "x") }));
  assert.deepEqual(groupsOf(paths(40, 10)).map((g) => g.length), [16, 16, 8]);
  assert.deepEqual(groupsOf(paths(5, 1900)).map((g) => g.length), [2, 2, 1]);
  assert.deepEqual(groupsOf(paths(2, 9000)).map((g) => g.length), [1, 1], "one that is long is alone");
  assert.deepEqual(groupsOf(paths(17, 10)).flat(), paths(17, 10));
  assert.deepEqual(groupsOf([]), []);
});

test("answers are complete wherever a piece ends", () => {
  const all = [{ n: 1, status: 200, body: { text: "a\\nb } {" } }, { n: 0, status: 503, retryAfter: "2", body: null }];
  const text = all.map((l) => JSON.stringify(l) + "\n").join("");
  for (let at = 0; at <= text.length; at++) {
    const lines = new Lines();
    assert.deepEqual([...lines.push(text.slice(0, at)), ...lines.push(text.slice(at))], all);
  }
});
