// The state of runs, steps, hooks and waits, as it is shown: a glyph, a word, and a pattern of bars. Colour repeats them.
import type { Hook, Outcome, ReasonKind, Run, RunReason, Step, Wait } from "../api.gen";

export type Look = "pending" | "running" | "retrying" | "waiting" | "completed" | "failed" | "cancelled";

export interface State {
  look: Look;
  word: string;
}

const looks: Partial<Record<ReasonKind, Look>> = {
  stranded: "failed", project_paused: "waiting", paused: "waiting", parked: "failed", deployment_missing: "failed", diverged: "failed", function_refuses: "failed", answer_refused: "failed",
  limit_deadlock: "failed", limit_paused: "failed", limit_full: "waiting", deployment_full: "waiting", rate: "waiting",
  unhealthy: "retrying", unreachable: "retrying", connection_closed: "retrying", function_fails: "retrying", task_fails: "retrying", step_backoff: "retrying",
  cancelling: "cancelled", called: "running", step_running: "running",
  start_delay: "waiting", child: "waiting", hook: "waiting", webhook: "waiting", signal: "waiting", approval: "waiting", wait: "waiting", inbox: "waiting",
};

// lookOf returns the glyph of a kind of reason.
export function lookOf(kind: ReasonKind): Look {
  return looks[kind] ?? "pending";
}

// stateOfRun returns the state of a run at a time: that of the first reason why it is not done, if it is known.
export function stateOfRun(r: Run, now: number): State {
  if (r.reason && !hasEnded(r)) {
    const look = lookOf(r.reason.kind);
    if (r.reason.kind === "paused") return { look, word: "paused" };
    if (r.reason.verdict !== "working") return { look, word: r.reason.verdict };
    if (look === "running") return { look, word: "running" };
  }
  if (r.status === "pending" || r.status === "running") {
    if (r.blocked) return { look: "retrying", word: "blocked" };
    if (r.forcedAt) return { look: "running", word: "cancelling" };
    if (r.startAt && Date.parse(r.startAt) > now) return { look: "waiting", word: "scheduled" };
  }
  return { look: r.status, word: r.status };
}

// whenOf returns which time of a reason a list shows, and what it says about it; null if none is known.
export function whenOf(r: RunReason): { word: string; at: string; as: "age" | "clock" | "duration" } | null {
  if (r.at && (r.verdict === "retrying" || r.verdict === "blocked")) return { word: "again", at: r.at, as: "age" };
  if (r.at && r.kind === "wait") return { word: "until", at: r.at, as: "clock" };
  if (r.at) return { word: "goes on", at: r.at, as: "age" };
  return r.since ? { word: "for", at: r.since, as: "duration" } : null;
}

// stateOfStep returns the state of a step. One that waits for its next attempt is retrying.
export function stateOfStep(s: Step): State {
  if (s.status === "pending" && s.attempt > 0) return { look: "retrying", word: "retrying" };
  return { look: s.status, word: s.status };
}

const mostNames = 3;

// stateOfOutcome returns what people have decided, and who.
export function stateOfOutcome({ decision, by = [] }: Outcome): State {
  const looks: Record<Outcome["decision"], Look> = { approved: "completed", rejected: "failed", expired: "cancelled" };
  const names = by.length > mostNames ? `${by.slice(0, mostNames).join(", ")} and ${by.length - mostNames} more` : by.join(", ");
  return { look: looks[decision], word: names ? `${decision} by ${names}` : decision };
}

export function stateOfHook(h: Hook): State {
  if (h.outcome) return stateOfOutcome(h.outcome);
  const states: Record<Hook["status"], State> = {
    active: { look: "waiting", word: "open" },
    retained: { look: "waiting", word: "retained" },
    disposed: { look: "completed", word: "closed" },
    conflict: { look: "failed", word: "conflict" },
  };
  return states[h.status];
}

export function stateOfWait(w: Wait): State {
  if (w.status === "waiting") return { look: "waiting", word: "sleeping" };
  return w.status === "completed" ? { look: "completed", word: "over" } : { look: "cancelled", word: w.status };
}

// hasEnded reports whether a run has ended.
export function hasEnded(r: Run): boolean {
  return r.status === "completed" || r.status === "failed" || r.status === "cancelled";
}

// durationOf returns how long a run has taken so far, in milliseconds: from its planned start, or its creation.
export function durationOf(r: Run, now: number): number {
  const from = Date.parse(r.startedAt ?? r.startAt ?? r.createdAt);
  return r.completedAt ? Date.parse(r.completedAt) - from : Math.max(0, now - from);
}

// lookOfEvent returns the look of an event, by its type.
export function lookOfEvent(type: string): Look {
  if (/failed|conflict/.test(type)) return "failed";
  if (/completed|received/.test(type)) return "completed";
  if (/cancel|disposed/.test(type)) return "cancelled";
  if (/retrying/.test(type)) return "retrying";
  if (/started/.test(type)) return "running";
  if (/^(hook|wait)_created/.test(type)) return "waiting";
  return "pending";
}
