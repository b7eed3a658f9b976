// What the palette offers for a text.

export interface Item {
  // What it is: a run, a page, an action, …
  kind: string;
  name: string;
  detail?: string;
  open: () => void;
}

// matching returns the items whose names have all words of a text, those that begin with it first.
export function matching(items: Item[], text: string): Item[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = items.filter((i) => words.every((w) => i.name.toLowerCase().includes(w)));
  const begins = (i: Item) => (words[0] && i.name.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return found.map((i, n) => ({ i, n })).sort((a, b) => begins(a.i) - begins(b.i) || a.n - b.n).map(({ i }) => i);
}

// step returns the place after or before one in a list of a length, which is a circle.
export function step(at: number, by: number, length: number): number {
  return length === 0 ? 0 : (at + by + length) % length;
}
