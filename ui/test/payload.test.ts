import { test } from "node:test";
import assert from "node:assert/strict";
import { failureOf } from "../src/lib/failure";
import { parentsOf, piecesOf, search, type Place } from "../src/lib/jsonsearch";
import { encodedBy, parseJson, treeRows, writeJson } from "../src/lib/jsontext";
import { isStack, linesOf } from "../src/lib/stack";

function found(text: string, words: string): Place[] {
  return [...search(parseJson(text), words)].filter((p) => p !== null);
}

test("a search finds keys and texts as they are shown, in the order of the tree", () => {
  const text = String.raw`{"order":{"name":"\u05e9\u05dc\u05d5\u05dd","tags":["Red","<b>&"]},"red":1e400,"a":"x","a":"Reddish"}`;
  const paths = (words: string) => found(text, words).map((p) => p.path);
  assert.deepEqual(paths("red"), ["$.order.tags[0]", "$.red", "$.a#2"]);
  assert.deepEqual(paths("שלום"), ["$.order.name"]);
  assert.deepEqual(paths("<B>&"), ["$.order.tags[1]"]);
  assert.deepEqual(paths("1e400"), ["$.red"]);
  assert.deepEqual(paths("order"), ["$.order"]);
  assert.deepEqual(paths("0"), ["$.red"]); // the index of an item is no key
  assert.deepEqual(parentsOf(found(text, "<b>")[0]!), ["$.order.tags", "$.order", "$"]);
});

test("every place that is found is a row of the tree once its parents are open", () => {
  const value = parseJson('{"a":[{"a":["a"]},[["a"]]],"b":{"a":{"a":"a"}}}');
  for (const place of [...search(value, "a")].filter((p) => p !== null)) {
    const open = new Set(parentsOf(place));
    assert.ok(treeRows(value, (path) => open.has(path)).some((r) => r.path === place.path), place.path);
  }
});

test("a search can pause after every value", () => {
  const steps = search(parseJson(JSON.stringify(Array.from({ length: 100_000 }, (_, i) => ({ id: `order-${i}` })))), "order-99999");
  let visited = 0;
  for (const place of steps) {
    visited++;
    if (place) assert.equal(place.path, "$[99999].id");
  }
  assert.equal(visited, 200_001);
});

test("a text is cut where it has the words", () => {
  const cut = (text: string, words: string, most = 20) => piecesOf(text, words, most).map((p) => (p.found ? `[${p.text}]` : p.text)).join("|");
  assert.equal(cut("a Red red", "red"), "a |[Red]| |[red]");
  assert.equal(cut("nothing", "red"), "nothing");
  assert.equal(cut("nothing", ""), "nothing");
  assert.equal(cut("x".repeat(200) + "red" + "y".repeat(200), "red", 60), `… |${"x".repeat(40)}|[red]|${"y".repeat(17)}`);
  assert.equal(cut("İ red", "red"), "İ red"); // in lower case it is longer
});

test("frames of the user's code are told from those of libraries", () => {
  for (const [stack, own] of [
    ["Error: no stock\n    at reserve (/app/src/order.ts:12:9)\n    at Layer.handle (/app/node_modules/express/lib/layer.js:95:5)\n    at node:internal/process/task_queues:95:5",
      [true, true, false, false]],
    ["main.pack(...)\n\t/src/shop/pack.go:31 +0x1d\nruntime/debug.Stack()\n\truntime/debug/stack.go:26 +0x5e\ngithub.com/a/b.Do()\n\tgithub.com/a/b@v1.2.3/do.go:7",
      [true, true, false, false, false, false]],
    ['Traceback (most recent call last):\n  File "/app/pay.py", line 4, in charge\n    raise Busy()\n  File "/usr/lib/python3.12/site-packages/x.py", line 9, in call\n    f()\nBusy: the bank',
      [true, true, true, false, false, true]],
    ["java.lang.IllegalStateException\n\tat com.shop.Order.pay(Order.java:3)\n\tat java.base/java.lang.Thread.run(Thread.java:1)", [true, true, false]],
  ] as Array<[string, boolean[]]>) {
    assert.ok(isStack(stack));
    assert.deepEqual(linesOf(stack).map((l) => l.own), own, stack);
    assert.equal(linesOf(stack).map((l) => l.text).join("\n"), stack);
  }
  for (const text of ["the bank is busy", "two\nlines at noon", ""]) assert.ok(!isStack(text));
});

test("an error is read from its payload, of every kind of app", () => {
  const read = (text: string) => {
    const f = failureOf(parseJson(text));
    return f && [f.code, f.message, f.stack, f.rest ? writeJson(f.rest, false) : ""];
  };
  assert.deepEqual(read('{"code":"busy","message":"a\\nb","details":{"stack":"at x","card":9007199254740993}}'),
    ["busy", "a\nb", "at x", '{"card":9007199254740993}']);
  assert.deepEqual(read('{"name":"RangeError","message":"no","stack":"RangeError: no\\n    at f","cause":1}'),
    ["RangeError", "no", "RangeError: no\n    at f", '{"cause":1}']);
  assert.deepEqual(read('{"message":"no","details":[1]}'), ["", "no", "", "[1]"]);
  assert.deepEqual(read('"only a text"'), ["", "only a text", "", ""]);
  for (const other of ["1", "{}", '{"message":1}', "[]"]) assert.equal(read(other), null);
});

test("what an app has encoded is known, wherever it is", () => {
  const sealed = '{"$codec":"aes-256-gcm/k1","data":"AA=="}';
  for (const [text, want] of [
    [sealed, "aes-256-gcm/k1"], [`{"message":"x","details":${sealed}}`, "aes-256-gcm/k1"], [`[1,{"a":[${sealed}]}]`, "aes-256-gcm/k1"],
    ['{"$codec":"x"}', ""], ['{"$codec":7,"data":"AA=="}', ""], ['{"a":"$codec","data":1}', ""], ["[]", ""],
  ]) assert.equal(encodedBy(parseJson(text!)), want, text);
});
