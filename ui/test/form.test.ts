import { test } from "node:test";
import assert from "node:assert/strict";
import { fieldsOf, fill, keyOf, mostFields, violations } from "../src/lib/form";
import { parseJson } from "../src/lib/jsontext";

const of = (schema: unknown) => fieldsOf(parseJson(JSON.stringify(schema)));
const object = (properties: Record<string, unknown>, required: string[] = []) => ({ type: "object", properties, required });

test("each type has its field", () => {
  for (const [schema, kind] of [
    [{ type: "string" }, "text"], [{ type: "string", maxLength: 2000 }, "long"], [{ type: "number" }, "number"], [{ type: "integer" }, "integer"],
    [{ type: "boolean" }, "boolean"], [{ enum: ["a", 1, null] }, "choice"], [{ const: 7 }, "choice"], [{ type: ["string", "null"] }, "text"],
    [{ type: "array", items: { type: "integer" } }, "list"], [{ type: "array", items: { type: "object" } }, "json"], [{ type: "array" }, "json"],
    [{ type: ["string", "number"] }, "json"], [{ anyOf: [{ type: "string" }] }, "json"], [{ type: "string", not: { const: "x" } }, "json"],
    [true, "json"], [{}, "json"], [{ type: "object" }, "json"], [{ $ref: "#/nowhere" }, "json"], [{ $ref: "http://elsewhere/" }, "json"],
    [{ enum: Array.from({ length: 1000 }, (_, i) => i) }, "json"],
  ] as const) {
    assert.equal(of(schema)[0]!.kind, kind, JSON.stringify(schema));
    assert.equal(of(object({ x: schema }))[0]!.kind, kind, JSON.stringify(schema));
  }
});

test("fields have names, words, and what is in them at first", () => {
  const fields = of({ ...object({
    note: { type: "string", title: "Note to the customer", description: "At most a line.", default: "fine" },
    address: object({ street: { type: "string" }, town: { $ref: "#/$defs/town" } }, ["street"]),
    tags: { type: "array", items: { type: "string" }, default: ["a", "b"] }, big: { type: "number", default: 1 }, meta: { default: { a: 1 } },
  }, ["address", "missing"]), $defs: { town: { type: "string", default: "Haifa" } } });
  assert.deepEqual(fields.map((f) => [keyOf(f.path), f.label, f.required, f.first]), [
    ["/address/street", "address › street", true, ""], ["/address/town", "address › town", false, "Haifa"], ["/missing", "missing", true, ""],
    ["/note", "Note to the customer", false, "fine"], ["/tags", "tags", false, "a\nb"], ["/big", "big", false, "1"],
    ["/meta", "meta", false, '{\n  "a": 1\n}'],
  ]);
  assert.equal(fields[3]!.help, "At most a line.");
});

test("the JSON has what was typed, as it was typed", () => {
  const fields = of(object({
    limit: { type: "number" }, n: { type: "integer" }, ok: { type: "boolean" }, why: { type: "string" }, level: { enum: ["low", 2] },
    list: { type: "array", items: { type: "number" } }, deep: object({ er: object({ value: { type: "string" } }) }), any: {},
  }, ["limit"]));
  assert.deepEqual(fill(fields, {
    "/limit": "9007199254740993.50", "/n": " 12 ", "/ok": "false", "/why": 'a "b"', "/level": '"low"', "/list": "1\n\n2.5\n", "/deep/er/value": "x", "/any": '{"a": [1]}',
  }), { json: '{"limit":9007199254740993.50,"n":12,"ok":false,"why":"a \\"b\\"","level":"low","list":[1,2.5],"deep":{"er":{"value":"x"}},"any":{"a":[1]}}', problems: {} });
  assert.deepEqual(fill(fields, { "/limit": "1" }), { json: '{"limit":1}', problems: {} });
  assert.deepEqual(fill(fields, { "/n": "1.5", "/list": "1\nx", "/any": "{" }).problems, {
    "/limit": "This is required.", "/n": "This is no whole number.", "/list": "This is no number.", "/any": "This is no JSON: a key in quotes is missing in line 1, column 2.",
  });
  assert.deepEqual(fill(of({ type: "integer" }), { "": "7" }), { json: "7", problems: {} });
  assert.deepEqual(fill(of({ type: "array", items: { type: "string" } }), { "": "a\nb" }), { json: '["a","b"]', problems: {} });
  assert.deepEqual(fill(of(object({ __proto: { type: "string" }, "a/b~c": { type: "string" } })), { "/a~1b~0c": "x" }).json, '{"a/b~c":"x"}');
});

test("a form of a thousand fields, or of fifty levels, is short, and loses nothing", () => {
  const many = of(object(Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`f${i}`, { type: "string" }])), ["f999"]));
  assert.equal(many.length, mostFields);
  assert.equal(many[0]!.label, "f999");
  assert.equal(many.at(-1)!.kind, "json");
  assert.equal(fill(many, { "/f999": "a", "": '{"f998": "b"}' }).json, '{"f999":"a","f998":"b"}');
  assert.deepEqual(fill(many, { "/f999": "a", "": "[1]" }).problems, { "": "This is no JSON object." });
  let deep: unknown = { type: "string" };
  for (let i = 0; i < 50; i++) deep = object({ in: deep });
  const fields = of(deep);
  assert.deepEqual(fields.map((f) => [f.kind, f.label]), [["json", "in › in › in"]]);
  assert.equal(fill(fields, { "/in/in/in": '{"in":{}}' }).json, '{"in":{"in":{"in":{"in":{}}}}}');
  assert.equal(of({ $ref: "#" }).length, 1);
  assert.equal(of({ $defs: { a: object({ in: { $ref: "#/$defs/a" } }) }, $ref: "#/$defs/a" }).length, 1);
});

test("what the server has found is at the field", () => {
  const fields = of(object({ limit: { type: "number" }, list: { type: "array", items: { type: "string" } } }));
  assert.deepEqual(violations(fields, [{ path: "/limit", message: "too small" }, { path: "/list/0", message: "too long" }, { path: "", message: "x is missing" }, { path: "/lim", message: "?" }]),
    { at: { "/limit": "too small", "/list": "too long" }, rest: ["x is missing", "/lim: ?"] });
  assert.deepEqual(violations(of({ type: "number" }), [{ path: "", message: "too small" }]), { at: { "": "too small" }, rest: [] });
});
