// Numbers by intervals of time, as charts show them.

// Values have a number for each interval; null if there is none to show.
export type Values = Array<number | null>;

// Window is a span of time in intervals of one length, in milliseconds.
export interface Window {
  start: number;
  stepMs: number;
  count: number;
}

const minute = 60_000;

// Range is how much time a page shows, and the step and the name that the API has for its intervals.
export interface Range {
  name: string;
  ms: number;
  stepMs: number;
  step: "1m" | "1h" | "6h";
}

export const ranges: Range[] = [
  { name: "hour", ms: 60 * minute, stepMs: minute, step: "1m" },
  { name: "day", ms: 24 * 60 * minute, stepMs: 60 * minute, step: "1h" },
  { name: "week", ms: 7 * 24 * 60 * minute, stepMs: 360 * minute, step: "6h" },
];

// windowOf returns the intervals of a range of which the last one has now in it.
export function windowOf(r: Range, now: number): Window {
  const end = (Math.floor(now / r.stepMs) + 1) * r.stepMs;
  return { start: end - r.ms, stepMs: r.stepMs, count: r.ms / r.stepMs };
}

// spread puts points into the intervals of a window. Intervals without a point get the value of none.
export function spread<P extends { at: string }>(w: Window, points: P[], value: (p: P) => number | null, none: 0 | null): Values {
  const values: Values = new Array<number | null>(w.count).fill(none);
  for (const p of points) {
    const i = Math.floor((Date.parse(p.at) - w.start) / w.stepMs);
    if (i >= 0 && i < w.count) values[i] = value(p);
  }
  return values;
}

export interface Named {
  name: string;
  values: Values;
}

// largest returns the series with the largest sums, and the sum of the others by the name "others". Series of nothing
// but zeros are left out.
export function largest(series: Named[], most: number): Named[] {
  const sorted = series.map((s) => ({ s, sum: sumOf(s.values) })).filter(({ sum }) => sum > 0)
    .sort((a, b) => b.sum - a.sum).map(({ s }) => s);
  if (sorted.length <= most) return sorted;
  const rest = sorted.slice(most);
  const values = rest[0]!.values.map((_, i) => rest.reduce((sum, s) => sum + (s.values[i] ?? 0), 0));
  return [...sorted.slice(0, most), { name: "others", values }];
}

export function sumOf(values: Values): number {
  return values.reduce<number>((sum, v) => sum + (v ?? 0), 0);
}

// niceMax returns a round number that is at least 1 and the largest value.
export function niceMax(largest: number): number {
  if (!(largest > 1)) return 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  for (const factor of [1, 2, 3, 4, 6, 8]) if (factor * power >= largest) return factor * power;
  return 10 * power;
}

// stack returns where the parts of stacked bars begin and end, by series and interval.
export function stack(series: Values[]): Array<Array<{ from: number; to: number }>> {
  const tops: number[] = [];
  return series.map((values) => values.map((v, i) => {
    const from = tops[i] ?? 0;
    return { from, to: (tops[i] = from + (v ?? 0)) };
  }));
}
