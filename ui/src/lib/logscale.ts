// A logarithmic scale of durations, between round ones: a run of half an hour leaves those of milliseconds visible.

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

// rounds are the durations that a scale names, in milliseconds.
const rounds = [1, 10, 100, second, 10 * second, minute, 10 * minute, hour, 6 * hour, day, 10 * day, 100 * day, 1000 * day, 10_000 * day];

export interface LogScale {
  // The durations that the scale names. The first and the last one are its ends.
  ticks: number[];
  // placeOf returns where a duration is, from 0 to 1. What is outside is at an end.
  placeOf: (ms: number) => number;
}

// logScale returns a scale for durations: from the last round one that none is below to the first that none is above.
export function logScale(values: Array<number | null>): LogScale {
  const known = values.filter((v) => v !== null);
  const least = Math.min(...known), most = Math.max(1, ...known);
  const first = known.length === 0 ? 0 : Math.max(0, Math.min(rounds.length - 2, rounds.findLastIndex((r) => r <= least)));
  const above = rounds.findIndex((r) => r >= most);
  const last = Math.max(first + 1, above < 0 ? rounds.length - 1 : above);
  const ticks = rounds.slice(first, last + 1);
  const from = Math.log(ticks[0]!), to = Math.log(ticks.at(-1)!);
  return { ticks, placeOf: (ms) => Math.max(0, Math.min(1, (Math.log(Math.max(ms, Number.MIN_VALUE)) - from) / (to - from))) };
}
