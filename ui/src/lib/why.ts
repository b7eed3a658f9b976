// Why a run is not done: how it looks, and what comes next. The server has the sentences and the commands.
import type { Explanation, Reason, ReasonKind, Run } from "../api.gen";
import { isSdkId, titleOf } from "./names";
import { stateOfRun, type State } from "./status";

function waiter(r: Reason): string {
  return r.stepId ? `step ${step(r)}` : "it";
}

function step(r: Reason): string {
  const id = r.stepId ?? "";
  if (!r.name || r.name === id) return id;
  return isSdkId(id) ? titleOf(r.name) : `${r.name} (${id})`;
}

function attempt(r: Reason): string {
  return `attempt ${r.attempt ?? 0}${r.maxAttempts ? ` of ${r.maxAttempts}` : ""}`;
}

// stateOf returns the state of a run as its explanation has it, so that the two never contradict each other. While there is
// none, the run itself says what it can.
export function stateOf(run: Run, e: Explanation | null, now: number): State {
  const first = e?.reasons[0];
  return stateOfRun(e && first ? { ...run, reason: { verdict: e.verdict, kind: first.kind, summary: first.sentence } } : run, now);
}

const quiet = new Set<ReasonKind>([
  "cancelling", "called", "step_running", "step_queued", "queued", "client", "unscheduled", "start_delay", "limit_full", "deployment_full", "rate", "child", "wait", "inbox",
]);

// needsNobody reports whether a run goes on without a person: no reason is a failure or waits for somebody.
export function needsNobody(e: Explanation): boolean {
  return e.reasons.every((r) => quiet.has(r.kind));
}

// nextOf says what happens next by itself; empty if nothing does at a known time.
export function nextOf(e: Explanation): string {
  const n = e.next;
  if (!n) return "";
  const r = e.reasons.find((r) => r.kind === n.kind && r.stepId === n.stepId && r.waitId === n.waitId);
  switch (n.kind) {
    case "step_backoff": return r ? `step ${step(r)}, ${attempt(r)}` : "the next attempt";
    case "wait": return n.waitId && !isSdkId(n.waitId) ? `the sleep ${n.waitId} is over` : "the sleep is over";
    case "start_delay": return "it starts";
    case "rate": return r ? `${waiter(r)} may begin` : "the rate allows it";
    case "stranded": return "the sweeper wakes it";
    default: return r?.stepId ? `the call of step ${step(r)} is repeated` : "the call is repeated";
  }
}

// commandsOf returns the command that explains the run, and those of all remedies, one a line.
export function commandsOf(e: Explanation): string {
  return [...new Set([`stepwell why ${e.runId}`, ...e.reasons.flatMap((r) => r.commands)])].join("\n");
}
