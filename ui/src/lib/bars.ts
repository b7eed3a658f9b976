// Where the bars of steps stand below one axis.

export interface Bar {
  // Percent of the axis.
  left: number;
  width: number;
}

// barOf returns the place of a span of time. It is at least wide enough to be seen, and inside the axis.
export function barOf(from: number, to: number, axisFrom: number, axisTo: number): Bar {
  const length = Math.max(1, axisTo - axisFrom);
  const least = 0.6;
  const width = Math.max(least, ((to - from) / length) * 100);
  const left = ((from - axisFrom) / length) * 100;
  return { left: Math.max(0, Math.min(left, 100 - least)), width: Math.min(width, 100 - Math.max(0, Math.min(left, 100 - least))) };
}
