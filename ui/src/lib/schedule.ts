// Schedules in words: when they tick, how they stand, and the command that makes one.
import type { Schedule, ScheduleSpec, Tick } from "../api.gen";
import { quote } from "./shell";
import type { Look, State } from "./status";

// timingOf says when a schedule ticks, as the command line does.
export function timingOf(s: Pick<ScheduleSpec, "cron" | "every" | "timeZone">): string {
  return s.every ? `every ${s.every}` : [s.cron, s.timeZone].filter(Boolean).join(" ");
}

// stateOfSchedule returns what a schedule does now.
export function stateOfSchedule(s: Schedule): State {
  if (s.pausedAt) return { look: "cancelled", word: "paused" };
  if (s.waitingAt) return { look: "waiting", word: (s.waiting ?? 1) > 1 ? `${s.waiting} ticks wait` : "waiting" };
  return s.nextAt ? { look: "running", word: "active" } : { look: "cancelled", word: "no more ticks" };
}

const looks: Record<Tick["decision"], Look> = {
  started: "completed", waiting: "waiting", skipped: "cancelled", missed: "cancelled", refused: "failed",
};

// lookOfDecision returns the glyph of a decision. A newer server may have others.
export function lookOfDecision(d: Tick["decision"]): Look {
  return looks[d] ?? "pending";
}

// flags are the fields of a schedule that the command line has as flags of the same meaning.
const flags: Array<[keyof ScheduleSpec, string]> = [
  ["cron", "--cron"], ["every", "--every"], ["timeZone", "--time-zone"], ["from", "--from"], ["until", "--until"], ["deployment", "--deployment"], ["timeout", "--timeout"],
  ["overlap", "--overlap"], ["catchUp", "--catch-up"], ["catchUpWindow", "--catch-up-window"], ["jitter", "--jitter"],
];

// putCommand returns the command that stores a schedule with an input, as it was written; empty for none.
export function putCommand(name: string, spec: ScheduleSpec, input: string): string {
  const words = ["stepwell schedules put", quote(name), quote(spec.workflow || "WORKFLOW")];
  for (const [field, flag] of flags) if (spec[field]) words.push(flag, quote(String(spec[field])));
  for (const [key, value] of Object.entries(spec.attributes ?? {})) words.push("--attr", quote(`${key}=${value}`));
  if (input) words.push("--input", quote(input));
  return words.join(" ");
}
