// Which rows of a list are selected.

// toggle returns the selection with an ID added or removed.
export function toggle(selected: ReadonlySet<string>, id: string): Set<string> {
  const copy = new Set(selected);
  if (!copy.delete(id)) copy.add(id);
  return copy;
}

// through returns the selection with all rows between two added, in either direction. Without the first of the two, it
// adds the other.
export function through(selected: ReadonlySet<string>, rows: string[], from: string, to: string): Set<string> {
  const a = rows.indexOf(from);
  const b = rows.indexOf(to);
  if (b < 0) return new Set(selected);
  const [first, last] = a < 0 ? [b, b] : [Math.min(a, b), Math.max(a, b)];
  return new Set([...selected, ...rows.slice(first, last + 1)]);
}
