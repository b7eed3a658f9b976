// The axis of a timeline: from times to places. Quiet times are cut: each has the same small place.
import type { Span } from "./gaps";

// Axis maps times, in milliseconds, to places, which grow with them. Outside its ends it goes on in the same way.
export class Axis {
  readonly length: number;
  // The size of a cut.
  readonly cut: number;
  private starts: number[] = []; // the place of each gap

  constructor(readonly from: number, readonly to: number, readonly gaps: Span[]) {
    let left = 0;
    let start = from;
    for (const g of gaps) {
      left += g.from - start;
      start = g.to;
    }
    left = Math.max(1, left + to - start);
    this.cut = left / 25;
    gaps.forEach((g, i) => this.starts.push(i === 0 ? g.from - from : this.behind(i - 1) + (g.from - gaps[i - 1]!.to)));
    this.length = this.placeOf(to);
  }

  // behind returns the place of the end of a gap.
  private behind(i: number): number {
    return this.starts[i]! + this.cut;
  }

  placeOf(time: number): number {
    for (let i = this.gaps.length - 1; i >= 0; i--) {
      const g = this.gaps[i]!;
      if (time >= g.to) return this.behind(i) + (time - g.to); // in this order: times are large
      if (time > g.from) return this.starts[i]! + (time - g.from) / (g.to - g.from) * this.cut;
    }
    return time - this.from;
  }

  timeOf(place: number): number {
    for (let i = this.gaps.length - 1; i >= 0; i--) {
      const g = this.gaps[i]!;
      if (place >= this.behind(i)) return g.to + (place - this.behind(i));
      if (place > this.starts[i]!) return g.from + (place - this.starts[i]!) / this.cut * (g.to - g.from);
    }
    return place + this.from;
  }
}

// View is the part of the axis that is shown, in places.
export interface View {
  from: number;
  to: number;
}

// narrowest is the smallest part that can be shown: 5 ms.
const narrowest = 5;

// whole shows all, and a margin after the end, where what is open has its arrow.
export function whole(axis: Axis): View {
  return { from: 0, to: axis.length * 1.03 };
}

// within moves a view inside the axis, and makes it no wider than that.
export function within(axis: Axis, v: View): View {
  const all = whole(axis);
  const width = Math.min(all.to, Math.max(v.to - v.from, Math.min(narrowest, all.to)));
  const from = Math.max(0, Math.min(v.from, all.to - width));
  return { from, to: from + width };
}

// zoom makes the view wider by a factor. The place at a part of the view, from 0 to 1, stays where it is.
export function zoom(axis: Axis, v: View, factor: number, at: number): View {
  const place = v.from + (v.to - v.from) * at;
  const width = Math.max(narrowest, Math.min((v.to - v.from) * factor, whole(axis).to));
  return within(axis, { from: place - width * at, to: place + width * (1 - at) });
}

// isWhole reports whether the view shows all.
export function isWhole(axis: Axis, v: View): boolean {
  return v.from <= 0 && v.to >= whole(axis).to * 0.9999;
}

// percent returns where a time is in the view, in percent. It is limited to a little outside.
export function percent(axis: Axis, v: View, time: number): number {
  return Math.max(-5, Math.min(105, (axis.placeOf(time) - v.from) / (v.to - v.from) * 100));
}

const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

// ticksOf returns the times that the axis names in a view: a number of round times at most, none of them in a gap.
export function ticksOf(axis: Axis, v: View, most: number): number[] {
  const rough = (v.to - v.from) / most;
  let step = 86_400_000 * Math.max(1, Math.ceil(rough / 86_400_000));
  for (const one of [...[1, 2, 5, 10, 20, 50, 100, 200, 500], ...seconds.map((s) => s * 1000)]) {
    if (one >= rough) {
      step = one;
      break;
    }
  }
  const ticks: number[] = [];
  let last = -Infinity;
  const end = axis.timeOf(Math.min(v.to, axis.length));
  for (let t = Math.ceil(axis.timeOf(v.from) / step) * step; t <= end; t += step) {
    const gap = axis.gaps.find((g) => t > g.from && t < g.to);
    if (gap) t = Math.ceil(gap.to / step) * step - step; // the loop goes on behind it
    else if (axis.placeOf(t) - last >= rough * 0.6) { // not beside one in front of a cut
      ticks.push(t);
      last = axis.placeOf(t);
    }
  }
  return ticks;
}

// apart reports which labels, from and to places on the screen, can be shown: those that stand apart from all before them in
// the list.
export function apart(labels: Span[]): boolean[] {
  const space = 4;
  const shown: Span[] = [];
  return labels.map((l) => {
    const free = shown.every((s) => l.to + space <= s.from || s.to + space <= l.from);
    if (free) shown.push(l);
    return free;
  });
}
