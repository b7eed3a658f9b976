// Quiet time: when nothing of a run begins, runs or ends.

export interface Span {
  from: number; // milliseconds
  to: number;
}

// shortest is the shortest quiet time that is cut, in milliseconds.
const shortest = 2000;

// gapsOf returns the quiet times between two times that are cut: those longer than a tenth of what is left when they and
// all longer ones are cut. They are in order and do not touch. Each keeps a margin at its ends, so that what is beside
// it can be seen.
export function gapsOf(busy: Span[], from: number, to: number): Span[] {
  const quiet: Span[] = [];
  let end = from;
  for (const s of [...busy, { from: to, to }].sort((a, b) => a.from - b.from)) {
    const start = Math.min(s.from, to);
    if (start - end >= shortest) quiet.push({ from: end, to: start });
    end = Math.max(end, s.to);
  }
  quiet.sort((a, b) => b.to - b.from - (a.to - a.from));
  const cut: Span[] = [];
  let left = to - from;
  for (const q of quiet) {
    const length = q.to - q.from;
    if (length <= (left - length) / 10) break;
    left -= length;
    cut.push(q);
  }
  const margin = Math.min(left / 100, shortest / 4);
  return cut.map((q) => ({ from: q.from + margin, to: q.to - margin })).sort((a, b) => a.from - b.from);
}
