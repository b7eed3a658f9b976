// Numbers by the hour of the day and the day, in a zone.
import { partsOf } from "./zone";

const hour = 3_600_000;

// Cell is what was counted in an hour of a day. From and to are its times; where summer time ends, it has two hours.
export interface Cell {
  from: number;
  to: number;
  count: number;
}

export interface Day {
  date: string;
  // By the hour of the day; undefined for hours that the time counted does not have.
  hours: Array<Cell | undefined>;
}

// heatOf returns the days of some hours from a time on, the newest first, with the counts that begin in them.
export function heatOf(points: Array<{ at: string; count: number }>, start: number, hours: number, zone: string): Day[] {
  const days = new Map<string, Day>();
  const cellAt = (at: number): Cell => {
    const { date, time } = partsOf(new Date(at), zone);
    const day = days.get(date) ?? { date, hours: new Array<Cell | undefined>(24).fill(undefined) };
    days.set(date, day);
    return (day.hours[Number(time.slice(0, 2))] ??= { from: at, to: at, count: 0 });
  };
  for (let n = 0; n < hours; n++) {
    const cell = cellAt(start + n * hour);
    cell.to = start + (n + 1) * hour;
  }
  for (const p of points) {
    const at = Date.parse(p.at);
    if (at >= start && at < start + hours * hour) cellAt(at).count += p.count;
  }
  return [...days.values()].reverse();
}

// levels are how many shades a heat map has, beside that of nothing.
export const levels = 4;

// levelOf returns the shade of a count: 0 for none, and by its part of the largest one otherwise.
export function levelOf(count: number, largest: number): number {
  return count <= 0 ? 0 : Math.min(levels, Math.max(1, Math.ceil((count / largest) * levels)));
}
