// Search in a JSON value: in its keys, and in its values as a tree shows them.
import { partsOf, readable, type JsonValue } from "./jsontext";

// Place is a value, with what contains it.
export interface Place {
  path: string;
  label: string | null;
  value: JsonValue;
  parent: Place | null;
}

// search visits the values one after the other, in the order of the tree, and yields each that has the words in its key or
// its text, upper case or lower; null for others. Whoever asks can pause between two.
export function* search(root: JsonValue, words: string): Generator<Place | null, void> {
  const wanted = words.toLowerCase();
  const open: Place[] = [{ path: "$", label: null, value: root, parent: null }];
  for (let p = open.pop(); p; p = open.pop()) {
    const text = p.value.kind === "array" || p.value.kind === "object" ? "" : readable(p.value.text);
    yield has(text, wanted) || isNamed(p) && has(p.label ?? "", wanted) ? p : null;
    for (const part of partsOf(p.value, p.path).reverse()) open.push({ ...part, parent: p });
  }
}

// isNamed reports whether the label of a place is a key, not the index of an item.
function isNamed(p: Place): boolean {
  return p.parent?.value.kind === "object";
}

function has(text: string, wanted: string): boolean {
  return text.toLowerCase().includes(wanted);
}

// parentsOf returns the paths of what contains a place: what must be open for it to be seen.
export function parentsOf(p: Place): string[] {
  const paths: string[] = [];
  for (let q = p.parent; q; q = q.parent) paths.push(q.path);
  return paths;
}

// Piece is a part of a text; found says that it is what was searched for.
export interface Piece {
  text: string;
  found: boolean;
}

const before = 40; // characters before the first piece that is found
const mostMarked = 50;

// piecesOf cuts a text where it has the words, at most so many characters of it: from a little before the first one.
export function piecesOf(text: string, words: string, most: number): Piece[] {
  const lower = text.toLowerCase();
  const wanted = words.toLowerCase();
  const first = wanted && lower.length === text.length ? lower.indexOf(wanted) : -1; // some letters change their length
  const from = first > 2 * before ? first - before : 0;
  const end = from + most;
  const pieces: Piece[] = from > 0 ? [{ text: "… ", found: false }] : [];
  let at = from;
  for (let i = first; i >= 0 && i < end && pieces.length < 2 * mostMarked; i = lower.indexOf(wanted, at)) {
    if (i > at) pieces.push({ text: text.slice(at, i), found: false });
    at = i + wanted.length;
    pieces.push({ text: text.slice(i, at), found: true });
  }
  if (at < Math.min(end, text.length)) pieces.push({ text: text.slice(at, end), found: false });
  return pieces;
}
