// Forms that are made of a JSON Schema: which fields there are, and the JSON of what was typed. What has no field of its own
// is typed as JSON, so that nothing of a schema is lost.
import { member, parseJson, writeJson, JsonError, type JsonObject, type JsonValue } from "./jsontext";

export type FieldKind = "text" | "long" | "number" | "integer" | "boolean" | "choice" | "list" | "json";

export interface Field {
  // The names of the object's properties that lead to it; none for a value that is no object.
  path: string[];
  kind: FieldKind;
  label: string;
  help: string;
  required: boolean;
  // The values of a choice, as JSON.
  choices: string[];
  // What the items of a list are.
  items: "text" | "number" | "integer";
  // What is in the field at first.
  first: string;
}

// mostFields is how many fields a form draws. Others are JSON: one field for all that are left.
export const mostFields = 40;
const deepest = 3; // levels of objects that have fields of their own
const mostChoices = 200;
const longText = 200; // characters from which on a text may have lines

const textOf = (v: JsonValue | undefined) => v?.kind === "string" ? JSON.parse(v.text) as string : "";
const itemsOf = (v: JsonValue | undefined) => v?.kind === "array" ? v.items : [];
const json = (v: JsonValue) => writeJson(v, false);

// keyOf returns the JSON Pointer to a field, by which the server names it.
export const keyOf = (path: string[]) => path.map((p) => "/" + p.replaceAll("~", "~0").replaceAll("/", "~1")).join("");

// beyond are the words of schemas that say more than fields can.
const beyond = ["anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "dependentSchemas", "dependentRequired", "$dynamicRef", "unevaluatedProperties"];

// resolve follows references within the schema. One that leads nowhere, or around, leads to nothing.
function resolve(root: JsonValue, v: JsonValue): JsonValue | undefined {
  let at: JsonValue | undefined = v;
  for (let n = 0; n < 8; n++) {
    const ref = textOf(member(at, "$ref"));
    if (!ref) return at;
    if (!ref.startsWith("#/")) return undefined;
    at = ref.slice(2).split("/").reduce<JsonValue | undefined>((v, p) => member(v, decodeURIComponent(p).replaceAll("~1", "/").replaceAll("~0", "~")), root);
  }
  return undefined;
}

interface Kind {
  kind: FieldKind;
  choices?: string[];
  items?: Field["items"];
}

// typeOf returns the type that a schema wants; empty if it wants several. Null is what a field without a value is.
function typeOf(v: JsonValue): string {
  const type = member(v, "type");
  const wanted = itemsOf(type).map(textOf).filter((t) => t !== "null");
  return type?.kind === "array" ? (wanted.length === 1 ? wanted[0]! : "") : textOf(type);
}

function kindOf(root: JsonValue, v: JsonValue | undefined): Kind {
  if (!v || beyond.some((word) => member(v, word))) return { kind: "json" };
  const fixed = member(v, "const");
  const choices = fixed ? [fixed] : itemsOf(member(v, "enum"));
  if (choices.length > 0) return choices.length <= mostChoices ? { kind: "choice", choices: choices.map(json) } : { kind: "json" };
  switch (typeOf(v)) {
    case "string": return { kind: Number(json(member(v, "maxLength") ?? { kind: "literal", text: "0" })) > longText ? "long" : "text" };
    case "number": return { kind: "number" };
    case "integer": return { kind: "integer" };
    case "boolean": return { kind: "boolean" };
    case "array": {
      const of = member(v, "items");
      const items = of && !member(v, "prefixItems") ? kindOf(root, resolve(root, of)).kind : "json";
      return items === "text" || items === "number" || items === "integer" ? { kind: "list", items } : { kind: "json" };
    }
    default: return { kind: "json" };
  }
}

function isGroup(v: JsonValue | undefined): v is JsonObject {
  const properties = member(v, "properties");
  return v !== undefined && typeOf(v) === "object" && properties?.kind === "object" && properties.entries.length > 0 && !beyond.some((word) => member(v, word));
}

function firstOf(k: Kind, given: JsonValue | undefined): string {
  if (!given) return "";
  if ((k.kind === "text" || k.kind === "long") && given.kind === "string") return textOf(given);
  if (k.kind === "list") return itemsOf(given).map((i) => i.kind === "string" ? textOf(i) : json(i)).join("\n");
  return k.kind === "json" ? writeJson(given) : json(given);
}

function fieldOf(root: JsonValue, v: JsonValue | undefined, path: string[], required: boolean): Field {
  const k = kindOf(root, v);
  const title = textOf(member(v, "title"));
  return {
    path, required, kind: k.kind, choices: k.choices ?? [], items: k.items ?? "text", first: firstOf(k, member(v, "default")),
    label: [...path.slice(0, -1), title || path.at(-1) || "Value"].join(" › "), help: textOf(member(v, "description")),
  };
}

// fieldsOf returns the fields for a schema, required ones first in each object.
export function fieldsOf(schema: JsonValue): Field[] {
  const fields: Field[] = [];
  const add = (of: JsonValue, path: string[], required: boolean) => {
    const v = resolve(schema, of);
    if (!isGroup(v) || path.length >= deepest) {
      fields.push(fieldOf(schema, v, path, required));
      return;
    }
    const wanted = new Set(itemsOf(member(v, "required")).map(textOf));
    const properties = member(v, "properties") as JsonObject;
    const known = new Map(properties.entries.map((e) => [e.key, e.value]));
    for (const name of wanted) if (!known.has(name)) known.set(name, { kind: "literal", text: "true" });
    const sorted = [...known].sort(([a], [b]) => Number(wanted.has(b)) - Number(wanted.has(a)));
    for (const [name, value] of sorted) {
      if (fields.length > mostFields) return; // one more than is drawn
      add(value, [...path, name], required && wanted.has(name));
    }
  };
  add(schema, [], true);
  if (fields.length <= mostFields) return fields;
  return [...fields.slice(0, mostFields - 1), {
    path: [], kind: "json", label: "All other fields, as one JSON object", help: "The form is too long to be drawn as a whole. What is here is added to the fields above.",
    required: false, choices: [], items: "text", first: "",
  }];
}

export type Typed = Record<string, string>;

// typedAt returns what is in a field.
export const typedAt = (f: Field, typed: Typed): string => typed[keyOf(f.path)] ?? f.first;

const numbers = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const integers = /^-?(0|[1-9]\d*)$/;

function scalar(kind: Field["items"], text: string): JsonValue {
  if (kind === "text") return { kind: "string", text: JSON.stringify(text) };
  const t = text.trim();
  if (!(kind === "integer" ? integers : numbers).test(t)) throw new Error(kind === "integer" ? "This is no whole number." : "This is no number.");
  return { kind: "number", text: t };
}

// valueOf returns the value of a field; undefined for none. It fails with what is wrong with it.
function valueOf(f: Field, text: string): JsonValue | undefined {
  if (text.trim() === "") {
    if (f.required) throw new Error("This is required.");
    return undefined;
  }
  switch (f.kind) {
    case "text": case "long": return scalar("text", text);
    case "number": case "integer": return scalar(f.kind, text);
    case "list": return { kind: "array", items: text.split("\n").filter((line) => line.trim() !== "").map((line) => scalar(f.items, f.items === "text" ? line.trim() : line)) };
    default: return parseJson(text);
  }
}

// put sets a value in an object, at a path.
function put(into: JsonObject, path: string[], value: JsonValue): void {
  const [name = "", ...rest] = path;
  let entry = into.entries.find((e) => e.key === name);
  if (!entry) into.entries.push(entry = { key: name, keyText: JSON.stringify(name), value: rest.length > 0 ? { kind: "object", entries: [] } : value });
  if (rest.length > 0 && entry.value.kind === "object") put(entry.value, rest, value);
}

export interface Filled {
  // The JSON; empty if nothing was typed, or something is wrong.
  json: string;
  // What is wrong, by the keys of the fields.
  problems: Record<string, string>;
}

// fill returns the JSON of what was typed.
export function fill(fields: Field[], typed: Typed): Filled {
  const problems: Record<string, string> = {};
  const object: JsonObject = { kind: "object", entries: [] };
  let whole: JsonValue | undefined;
  for (const f of fields) {
    try {
      const value = valueOf(f, typedAt(f, typed));
      if (!value) continue;
      if (f.path.length > 0) put(object, f.path, value);
      else if (fields.length === 1) whole = value;
      else if (value.kind === "object") for (const e of value.entries) put(object, [e.key], e.value);
      else throw new Error("This is no JSON object.");
    } catch (err) {
      problems[keyOf(f.path)] = err instanceof JsonError ? `This is no JSON: ${err.message}.` : (err as Error).message;
    }
  }
  if (Object.keys(problems).length > 0) return { json: "", problems };
  if (fields.length === 1 && fields[0]!.path.length === 0) return { json: whole ? json(whole) : "", problems };
  return { json: json(object), problems };
}

// violations returns what the server has found, by the keys of the fields: at the field itself, or the one around it. The
// others are in rest.
export function violations(fields: Field[], found: Array<{ path: string; message: string }>): { at: Record<string, string>; rest: string[] } {
  const at: Record<string, string> = {};
  const rest: string[] = [];
  for (const v of found) {
    const field = fields.find((f) => f.path.length > 0 && (v.path + "/").startsWith(keyOf(f.path) + "/")) ?? fields.find((f) => f.path.length === 0);
    if (field) at[keyOf(field.path)] = field.path.length > 0 || v.path === "" ? v.message : `${v.path}: ${v.message}`;
    else rest.push(v.path ? `${v.path}: ${v.message}` : v.message);
  }
  return { at, rest };
}
