// JSON as it was written. JSON.parse rounds numbers and drops doubled keys; this keeps the text of every value.

export interface JsonScalar {
  kind: "string" | "number" | "literal";
  text: string; // as it was written, with quotes and escapes
}

export interface JsonList {
  kind: "array";
  items: JsonValue[];
}

export interface JsonObject {
  kind: "object";
  // In the order in which they were written. Keys may occur more than once.
  entries: Array<{ key: string; keyText: string; value: JsonValue }>; // keyText as it was written, key with its escapes resolved
}

export type JsonValue = JsonScalar | JsonList | JsonObject;

// JsonError says where a text is no JSON.
export class JsonError extends Error {
  constructor(message: string, readonly line: number, readonly column: number) {
    super(`${message} in line ${line}, column ${column}`);
  }
}

const maxDepth = 1000;
const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const plain = /[^"\\\u0000-\u001f]*/y;
const escape = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const literal = /true|false|null/y;
const space = /[ \t\n\r]*/y;

// parseJson parses one JSON value. It fails with a JsonError.
export function parseJson(text: string): JsonValue {
  const p = new Parser(text);
  p.skip();
  const value = p.value(0);
  p.skip();
  if (p.at < text.length) p.fail("there is more than one value");
  return value;
}

class Parser {
  at = 0;
  constructor(private text: string) {}

  fail(message: string): never {
    const before = this.text.slice(0, this.at).split("\n");
    throw new JsonError(message, before.length, (before.at(-1)?.length ?? 0) + 1);
  }

  skip(): void {
    space.lastIndex = this.at;
    space.exec(this.text);
    this.at = space.lastIndex;
  }

  private match(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) return null;
    this.at = pattern.lastIndex;
    return found[0];
  }

  // string returns a text with its quotes, or null if there is none. One expression for all of it would not do: expressions
  // run out of stack for texts of some megabytes.
  private string(): string | null {
    const from = this.at;
    if (this.text[this.at] !== '"') return null;
    this.at++;
    do this.match(plain);
    while (this.match(escape));
    if (this.text[this.at] !== '"') {
      this.at = from;
      return null;
    }
    return this.text.slice(from, ++this.at);
  }

  private take(c: string): boolean {
    if (this.text[this.at] !== c) return false;
    this.at++;
    this.skip();
    return true;
  }

  value(depth: number): JsonValue {
    if (depth > maxDepth) this.fail("it is nested too deeply");
    const c = this.text[this.at];
    if (c === "{") return this.object(depth);
    if (c === "[") return this.array(depth);
    if (c === '"') return { kind: "string", text: this.string() ?? this.fail("the text is not closed, or has a bad escape") };
    const word = this.match(literal);
    if (word) return { kind: "literal", text: word };
    return { kind: "number", text: this.match(number) ?? this.fail(c === undefined ? "a value is missing" : `“${c}” begins no value`) };
  }

  private array(depth: number): JsonList {
    const items: JsonValue[] = [];
    this.take("[");
    if (this.take("]")) return { kind: "array", items };
    for (;;) {
      items.push(this.value(depth + 1));
      this.skip();
      if (this.closed("]")) return { kind: "array", items };
      if (!this.take(",")) this.fail("a comma or ] is missing");
    }
  }

  private object(depth: number): JsonObject {
    const entries: JsonObject["entries"] = [];
    this.take("{");
    if (this.closed("}")) return { kind: "object", entries };
    for (;;) {
      const key = this.string() ?? this.fail("a key in quotes is missing");
      this.skip();
      if (!this.take(":")) this.fail("a colon is missing");
      entries.push({ key: JSON.parse(key) as string, keyText: key, value: this.value(depth + 1) });
      this.skip();
      if (this.closed("}")) return { kind: "object", entries };
      if (!this.take(",")) this.fail("a comma or } is missing");
    }
  }

  private closed(c: string): boolean {
    if (this.text[this.at] !== c) return false;
    this.at++;
    return true;
  }
}

// member returns the last value of a key in an object, or undefined.
export function member(v: JsonValue | undefined, key: string): JsonValue | undefined {
  return v?.kind === "object" ? v.entries.findLast((e) => e.key === key)?.value : undefined;
}

// encodedBy returns what an app has encoded a value with, or the first encoded part of it; empty if there is none.
export function encodedBy(v: JsonValue | undefined): string {
  const name = member(v, "$codec");
  if (name?.kind === "string" && member(v, "data")) return JSON.parse(name.text) as string;
  const parts = v?.kind === "object" ? v.entries.map((e) => e.value) : v?.kind === "array" ? v.items : [];
  for (const part of parts) {
    const found = encodedBy(part);
    if (found) return found;
  }
  return "";
}

// writeJson returns a value as text, indented by two spaces a level, or without white space.
export function writeJson(v: JsonValue, indent = true, level = 0): string {
  if (v.kind !== "array" && v.kind !== "object") return v.text;
  const [open, close] = v.kind === "array" ? ["[", "]"] : ["{", "}"];
  const parts = v.kind === "array"
    ? v.items.map((item) => writeJson(item, indent, level + 1))
    : v.entries.map((e) => e.keyText + (indent ? ": " : ":") + writeJson(e.value, indent, level + 1));
  if (parts.length === 0) return open + close;
  if (!indent) return open + parts.join(",") + close;
  const pad = "  ".repeat(level);
  return `${open}\n${parts.map((p) => `${pad}  ${p}`).join(",\n")}\n${pad}${close}`;
}

const escapes = /(?:\\u[\da-fA-F]{4})+|\\[^u]/g;
// Controls, halves of characters, ends of lines, and what turns the direction of the text around.
const unreadable = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}"\\\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

// readable returns a value as it was written, with characters instead of their escapes: \u05e9 is ש. What cannot be seen, or
// would not be one line, stays escaped.
export function readable(text: string): string {
  return text.replace(escapes, (run) => {
    if (run === "\\/") return "/";
    if (run[1] !== "u") return run;
    return (JSON.parse(`"${run}"`) as string).replace(unreadable, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  });
}

// withValue returns the text of an object with one more key, whose value is the text of JSON and stays as it was written.
export function withValue(object: Record<string, unknown>, key: string, text: string): string {
  const rest = JSON.stringify(object).slice(1);
  return `{${JSON.stringify(key)}:${writeJson(parseJson(text), false)}${rest === "}" ? "" : ","}${rest}`;
}

// TreeRow is a line of a tree of which some parts are open.
export interface TreeRow {
  path: string; // identifies the row: $.items[3].price
  label: string | null; // the key, or the index of an item; null for the whole
  level: number;
  value: JsonValue;
  open: boolean;
}

// treeRows returns the lines to show. A part is open if isOpen says so for its path and level.
export function treeRows(root: JsonValue, isOpen: (path: string, level: number, size: number) => boolean): TreeRow[] {
  const rows: TreeRow[] = [];
  const add = (value: JsonValue, path: string, label: string | null, level: number) => {
    const size = sizeOf(value);
    const open = size > 0 && isOpen(path, level, size);
    rows.push({ path, label, level, value, open });
    if (!open) return;
    for (const p of partsOf(value, path)) add(p.value, p.path, p.label, level + 1);
  };
  add(root, "$", null, 0);
  return rows;
}

// Part is a value in another one, with its path and its key or index.
export interface Part {
  path: string;
  label: string;
  value: JsonValue;
}

// partsOf returns the parts of a value that has a path. Of a key that is there twice, the second one has the path key#2.
export function partsOf(value: JsonValue, path: string): Part[] {
  if (value.kind === "array") return value.items.map((item, i) => ({ value: item, path: `${path}[${i}]`, label: String(i) }));
  if (value.kind !== "object") return [];
  const seen = new Map<string, number>();
  return value.entries.map((e) => {
    const n = (seen.get(e.key) ?? 0) + 1;
    seen.set(e.key, n);
    return { value: e.value, path: pathTo(path, e.key) + (n > 1 ? `#${n}` : ""), label: e.key };
  });
}

// openDepth returns how many levels of a tree can be open at first, at most three, with so many lines at most. Parts that are
// larger than isOpen allows are closed.
export function openDepth(root: JsonValue, isOpen: (size: number) => boolean, most: number): number {
  let level = [root];
  for (let depth = 0, lines = 1; depth < 3; depth++) {
    const parts = level.filter((v) => isOpen(sizeOf(v)));
    lines += parts.reduce((sum, v) => sum + sizeOf(v), 0);
    if (lines > most) return depth;
    level = parts.flatMap((v) => (v.kind === "array" ? v.items : v.kind === "object" ? v.entries.map((e) => e.value) : []));
  }
  return 3;
}

function pathTo(path: string, key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}

// sizeOf returns the number of parts of a value.
export function sizeOf(v: JsonValue): number {
  if (v.kind === "array") return v.items.length;
  return v.kind === "object" ? v.entries.length : 0;
}

// hexLine returns a line of sixteen bytes, as hexdump -C shows them.
export function hexLine(bytes: Uint8Array, line: number): string {
  const part = bytes.slice(line * 16, line * 16 + 16);
  const hex = Array.from(part, (b) => b.toString(16).padStart(2, "0"));
  const shown = Array.from(part, (b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : "·")).join("");
  const left = hex.slice(0, 8).join(" ").padEnd(23);
  return `${(line * 16).toString(16).padStart(6, "0")}  ${left}  ${hex.slice(8).join(" ").padEnd(23)}  ${shown}`;
}

// formatBytes returns a size: 212 B, 4.2 kB, 21 MB.
export function formatBytes(n: number): string {
  if (n < 1000) return `${n} B`;
  if (n < 1_000_000) return `${trim(n / 1000)} kB`;
  return `${trim(n / 1_000_000)} MB`;
}

function trim(n: number): string {
  return n < 10 ? n.toFixed(1) : String(Math.round(n));
}
