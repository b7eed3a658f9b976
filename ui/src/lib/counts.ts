// Numbers that may be capped.

export interface Count {
  count: number;
  atLeast: boolean;
}

// sumOf returns how many there are in all of what the API has counted up to a limit.
export function sumOf(...counted: Array<{ count: number; more: boolean }>): Count {
  return { count: counted.reduce((n, c) => n + c.count, 0), atLeast: counted.some((c) => c.more) };
}

// formatCount returns a number with a plus if there may be more.
export function formatCount(c: Count): string {
  return c.count.toLocaleString("en") + (c.atLeast ? "+" : "");
}

// runs returns a number of runs in words.
export function runs(c: Count): string {
  return `${formatCount(c)} ${c.count === 1 && !c.atLeast ? "run" : "runs"}`;
}

// notBelow returns a count that was made some time ago, and is at least what is shown since.
export function notBelow(c: Count, shown: number): Count {
  return { ...c, count: Math.max(c.count, shown) };
}
