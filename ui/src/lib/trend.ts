// Numbers of workflows and their steps, from the statistics of the server.
import type { RunPoint, StepStats } from "../api.gen";

// Span is a stretch of time until now, and the length of its parts.
export interface Span {
  name: string;
  ms: number;
  step: string;
  stepMs: number;
}

const minute = 60_000;
const hour = 60 * minute;

export const spans: Span[] = [
  { name: "1h", ms: hour, step: "5m", stepMs: 5 * minute },
  { name: "24h", ms: 24 * hour, step: "1h", stepMs: hour },
  { name: "7d", ms: 168 * hour, step: "6h", stepMs: 6 * hour },
];

// spanOf returns the span of a name; 24 hours for others.
export function spanOf(name: string | null): Span {
  return spans.find((s) => s.name === name) ?? spans[1]!;
}

// startOf returns when a span begins: at the beginning of a part, because counts are kept for whole parts.
export function startOf(s: Span, now: number): number {
  return Math.floor(now / s.stepMs) * s.stepMs - s.ms + s.stepMs;
}

// barsOf returns a bar for each part of the span, with zeros for those in which nothing happened.
export function barsOf(points: RunPoint[], s: Span, from: number): Array<{ all: number; failed: number }> {
  const bars = Array.from({ length: s.ms / s.stepMs }, () => ({ all: 0, failed: 0 }));
  for (const p of points) {
    const bar = bars[Math.floor((Date.parse(p.at) - from) / s.stepMs)];
    if (!bar) continue;
    bar.all += Math.max(p.created, p.failed);
    bar.failed += p.failed;
  }
  return bars;
}

// endedOf returns how many runs ended.
export function endedOf(p: RunPoint): number {
  return p.completed + p.failed + p.cancelled;
}

// formatShare returns a part of a whole: 14 %, 0.2 %, < 0.1 %; empty for nothing of nothing.
export function formatShare(part: number, whole: number): string {
  if (whole <= 0) return "";
  const percent = (part / whole) * 100;
  if (percent === 0) return "0 %";
  if (percent < 0.1) return "< 0.1 %";
  return percent < 10 ? `${Number(percent.toFixed(1))} %` : `${Math.round(percent)} %`;
}

// isRising reports whether failures are at least twice as frequent in the last quarter as before. Fewer than three say
// nothing.
export function isRising(bars: Array<{ all: number; failed: number }>): boolean {
  const cut = Math.floor(bars.length * 0.75);
  const sum = (list: typeof bars, of: "all" | "failed") => list.reduce((n, b) => n + b[of], 0);
  const [before, late] = [bars.slice(0, cut), bars.slice(cut)];
  const failed = sum(late, "failed");
  if (failed < 3) return false;
  return failed / Math.max(1, sum(late, "all")) >= 2 * (sum(before, "failed") / Math.max(1, sum(before, "all")));
}

export interface StepLine extends StepStats {
  ended: number;
  // Attempts for each step; NaN if none ended.
  attempts: number;
  // The part of the time of all steps, from 0 to 1: how many there were by their median.
  share: number;
}

// stepLines returns the steps in the order of a run's, and then by name those that the run did not have.
export function stepLines(steps: StepStats[], order: string[]): StepLine[] {
  const rank = new Map<string, number>();
  for (const name of order) if (!rank.has(name)) rank.set(name, rank.size);
  const place = (s: StepStats) => rank.get(s.name) ?? rank.size;
  const time = (s: StepStats) => (s.completed + s.failed) * (s.tookMs?.p50 ?? 0);
  const all = steps.reduce((sum, s) => sum + time(s), 0);
  return [...steps]
    .sort((a, b) => place(a) - place(b) || (a.name < b.name ? -1 : 1))
    .map((s) => {
      const ended = s.completed + s.failed + s.cancelled;
      return { ...s, ended, attempts: ended > 0 ? (ended + s.retried) / ended : NaN, share: all > 0 ? time(s) / all : 0 };
    });
}

// Release is when a deployment was put or changed last.
export interface Release {
  id: string;
  updatedAt: string;
}

// beganAfter returns how many milliseconds after the change of its deployment something began, if that is less than
// half an hour and so likely its cause, or null. Before since nothing is known.
export function beganAfter(firstAt: string, deployment: string, releases: Release[], since: string): number | null {
  const release = releases.find((d) => d.id === deployment);
  if (!release || release.updatedAt < since) return null;
  const after = Date.parse(firstAt) - Date.parse(release.updatedAt);
  return after >= 0 && after <= 30 * minute ? after : null;
}
