import { test } from "node:test";
import assert from "node:assert/strict";
import { hexLine, JsonError, member, openDepth, parseJson, readable, treeRows, withValue, writeJson } from "../src/lib/jsontext";
import { random } from "./random";

test("numbers, order, doubled keys and escapes stay as written", () => {
  const text = '{"b":9007199254740993,"a":1.10,"b":1e400,"2":[-0.0,"\\u00e9\\/"],"1":null}';
  assert.equal(writeJson(parseJson(text), false), text);
  const rows = treeRows(parseJson(text), () => true);
  assert.deepEqual(rows.map((r) => r.path), ["$", "$.b", "$.a", "$.b#2", '$["2"]', '$["2"][0]', '$["2"][1]', '$["1"]']);
});

test("2,000 generated documents are as JSON.parse sees them", () => {
  const next = random(11);
  const value = (depth: number): unknown => {
    const kind = Math.floor(next() * (depth > 4 ? 5 : 7));
    const length = Math.floor(next() * 4);
    if (kind === 0) return Math.floor(next() * 1e9) - 5e8;
    if (kind === 1) return next() * 10 ** Math.floor(next() * 30 - 15);
    if (kind === 2) return ['"', "\\", "é\n", "\u2028", "😀", ""][Math.floor(next() * 6)];
    if (kind < 5) return [true, false, null][Math.floor(next() * 3)];
    if (kind === 5) return Array.from({ length }, () => value(depth + 1));
    return Object.fromEntries(Array.from({ length }, (_, i) => [`k${i} "`, value(depth + 1)]));
  };
  for (let i = 0; i < 2000; i++) {
    const v = value(0);
    const text = JSON.stringify(v, null, i % 2);
    assert.equal(writeJson(parseJson(text), false), JSON.stringify(v));
    assert.deepEqual(JSON.parse(writeJson(parseJson(text))), v);
  }
});

test("what is no JSON is refused with its place, as JSON.parse refuses it", () => {
  const wrong = ["", "{", "[1,]", '{"a":1,}', "01", "1.", "+1", "'a'", '"\n"', '"\\x"', "nul", "[1] 2", '{"a" 1}', "{a:1}", "\u00a01", "[1 2]", "--1"];
  for (const text of wrong) {
    assert.throws(() => JSON.parse(text), SyntaxError, text);
    assert.throws(() => parseJson(text), JsonError, text);
  }
  assert.throws(() => parseJson('{\n  "a": x}'), (err: JsonError) => err.line === 2 && err.column === 8);
  assert.throws(() => parseJson("[".repeat(100_000)), JsonError);
});

test("a payload is sent as it was written", () => {
  assert.equal(withValue({ id: "x" }, "payload", '{ "n": 9007199254740993 }'), '{"payload":{"n":9007199254740993},"id":"x"}');
});

test("parts can be read", () => {
  const v = parseJson('{"a":1,"a":{"b":2}}');
  assert.equal(writeJson(member(member(v, "a"), "b")!), "2");
  assert.equal(member(v, "c"), undefined);
  assert.equal(hexLine(new TextEncoder().encode("devl[1]é"), 0), "000000  64 65 76 6c 5b 31 5d c3  a9                       devl[1]··");
});

test("a text of 16 MiB is read, with escapes and without", () => {
  for (const part of ["a", "\\n"]) {
    const text = `"${part.repeat((16 << 20) / part.length)}"`;
    const v = parseJson(text);
    assert.ok(v.kind === "string" && v.text === text);
  }
  for (const wrong of ['"', '"a', '"\\"', '"\\x"', '"\n"', '{"a}']) assert.throws(() => parseJson(wrong), JsonError);
});

test("a tree opens no more lines than a page can draw", () => {
  const wide = parseJson(JSON.stringify(Array.from({ length: 150 }, () => Array.from({ length: 150 }, () => [1, 2, 3]))));
  const small = (size: number) => size <= 200;
  assert.equal(openDepth(wide, small, 2000), 1);
  assert.equal(openDepth(parseJson('{"a":[{"b":[1]}]}'), small, 2000), 3);
  assert.equal(openDepth(parseJson(JSON.stringify(new Array(500).fill(1))), small, 2000), 3); // closed: it is too large
});

test("texts are read as their characters, and copied as they were written", () => {
  for (const [stored, shown] of [
    [String.raw`"\u05e9\u05dc\u05d5\u05dd"`, '"שלום"'],
    [String.raw`"\ud83d\ude00 \u003cb\u003e a\/b"`, '"😀 <b> a/b"'],
    [String.raw`"\\u05e9"`, String.raw`"\\u05e9"`], // a backslash, then letters
    [String.raw`"a\n\t\"\\"`, String.raw`"a\n\t\"\\"`],
    [String.raw`"\u0022\u005c\u0000\u2028\u202e"`, String.raw`"\u0022\u005c\u0000\u2028\u202e"`],
    [String.raw`"\ud83d"`, String.raw`"\ud83d"`],
    ['"', '"'], ["9007199254740993", "9007199254740993"],
  ] as Array<[string, string]>) {
    assert.equal(readable(stored), shown);
  }
  const text = String.raw`{"\u05e9":"\u05dc\ud83d\ude00"}`;
  assert.equal(writeJson(parseJson(text), false), text);
});
