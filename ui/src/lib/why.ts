// Why a run is not done, in words. The command line says the same: cmd/stepwell/remote/testdata/sentences.json has both.
import type { Explanation, Reason, ReasonKind, Remedy } from "../api.gen";
import { quote } from "./shell";
import type { Look } from "./status";

const sentences: Record<ReasonKind, (r: Reason) => string> = {
  stranded: (r) => `Nothing would move it: ${r.detail || "a message is missing"}.`,
  project_paused: (r) => `Project ${r.name ?? ""} is paused: nothing of it is called until an operator resumes it.`,
  parked: (r) => `Nothing happens until somebody looks: ${call(r)} failed ${times(r)}.`,
  deployment_missing: (r) => `${upper(call(r))} is for deployment ${r.deployment ?? ""}, which is not registered.`,
  diverged: () => "The code changed under the run: its log does not fit the function.",
  function_refuses: () => "The function refuses to go on.",
  answer_refused: () => "The server refuses the function's answer.",
  limit_deadlock: (r) => `${upper(waiter(r))} waits for a slot of ${limitAndKey(r)} for ever: ${(r.circle ?? []).join(" and ")} wait for each other's slots. Cancel one of them.`,
  limit_paused: (r) => `${upper(waiter(r))} waits for limit ${r.limit ?? ""}, which is paused.`,
  limit_full: (r) => `${upper(waiter(r))} waits for a slot of ${limitAndKey(r)}: ${r.held ?? 0} of ${r.slots ?? 0} are taken${holders(r)}${ahead(r)}.`,
  deployment_full: (r) => `${upper(call(r))} waits: ${r.held ?? 0} of ${r.slots ?? 0} calls that deployment ${r.deployment ?? ""} may have at once are under way${ahead(r)}.`,
  rate: (r) => `${upper(waiter(r))} waits for the rate of ${limitAndKey(r)}${ahead(r)}.`,
  unhealthy: (r) => `Deployment ${r.deployment ?? ""} is not called, because it is unhealthy. No attempt is used up.`,
  unreachable: (r) => `Deployment ${r.deployment ?? ""} cannot be reached: it was tried ${times(r)}. No attempt is used up.`,
  connection_closed: (r) => `${upper(call(r))} was taken ${times(r)}, and the connection closed before an answer: look at the app's log.`,
  function_fails: (r) => `${upper(call(r))} has failed ${times(r)}.`,
  task_fails: (r) => `A task of the server has failed ${times(r)}.`,
  step_backoff: (r) => `Step ${step(r)} failed and is tried again: ${attempt(r)}.`,
  cancelling: () => "It was asked to cancel, and is ended when its grace is over.",
  called: (r) => `Its function is being called at deployment ${r.deployment ?? ""}.`,
  step_running: (r) => `Step ${step(r)} is running: ${attempt(r)}.`,
  step_queued: (r) => `Step ${step(r)} waits for a free slot${backlog(r)}.`,
  queued: (r) => `The call of its function waits for a free slot${backlog(r)}.`,
  client: (r) => `The app has not taken the message that wakes it${backlog(r)}.`,
  unscheduled: () => "Something has just happened, and what follows from it is not there yet.",
  start_delay: () => "It was started for a later time.",
  child: (r) => `Step ${step(r)} waits for child ${r.childId ?? ""}, which is ${r.childStatus ?? ""}.`,
  hook: (r) => `Nobody has resumed hook ${r.hookId ?? ""}.`,
  webhook: (r) => `No request has come to webhook ${r.hookId ?? ""}.`,
  signal: (r) => `Hook ${r.hookId ?? ""} waits for a signal ${r.name ?? ""}.`,
  approval: (r) => `Approval ${r.hookId ?? ""} is not decided: it has ${r.votes === 1 ? "one vote" : `${r.votes ?? 0} votes`}.`,
  wait: (r) => `${`It sleeps ${r.waitId ?? ""}`.trim()}.`,
  inbox: (r) => `Inbox ${r.name ?? ""} is open for messages.`,
};

function call(r: Reason): string {
  return r.stepId ? `the call of step ${step(r)}` : "the call of its function";
}

function waiter(r: Reason): string {
  return r.stepId ? `step ${step(r)}` : "it";
}

function limitAndKey(r: Reason): string {
  return `limit ${r.limit ?? ""}${r.key && !r.inAll ? `, key ${r.key}` : ""}`;
}

function holders(r: Reason): string {
  const first = r.holders?.[0];
  return first ? `, by ${first.runId}${r.held === 1 ? "" : " and others"}` : "";
}

function ahead(r: Reason): string {
  return !r.ahead ? "; it is next" : r.ahead === 1 ? "; one is before it" : `; ${r.ahead} are before it`;
}

function step(r: Reason): string {
  return !r.name || r.name === r.stepId ? r.stepId ?? "" : `${r.name} (${r.stepId ?? ""})`;
}

function attempt(r: Reason): string {
  return `attempt ${r.attempt ?? 0}${r.maxAttempts ? ` of ${r.maxAttempts}` : ""}`;
}

function times(r: Reason): string {
  return r.failures === 1 ? "once" : `${r.failures ?? 0} times`;
}

function backlog(r: Reason): string {
  return (r.backlog ?? 0) > 1 ? `; ${r.backlog} messages are due` : "";
}

function upper(s: string): string {
  return s.charAt(0).toUpperCase() + s.slice(1);
}

// sentenceOf says what a reason means. A newer server may send kinds that have no sentence.
export function sentenceOf(r: Reason): string {
  const say = (sentences as Partial<Record<string, (r: Reason) => string>>)[r.kind];
  return say ? say(r) : `${r.kind.replaceAll("_", " ")}.`;
}

const looks: Partial<Record<ReasonKind, Look>> = {
  stranded: "failed", project_paused: "waiting", parked: "failed", deployment_missing: "failed", diverged: "failed", function_refuses: "failed", answer_refused: "failed",
  limit_deadlock: "failed", limit_paused: "failed", limit_full: "waiting", deployment_full: "waiting", rate: "waiting",
  unhealthy: "retrying", unreachable: "retrying", connection_closed: "retrying", function_fails: "retrying", task_fails: "retrying", step_backoff: "retrying",
  cancelling: "cancelled", called: "running", step_running: "running",
  start_delay: "waiting", child: "waiting", hook: "waiting", webhook: "waiting", signal: "waiting", approval: "waiting", wait: "waiting", inbox: "waiting",
};

// lookOf returns the glyph of a reason.
export function lookOf(r: Reason): Look {
  return looks[r.kind] ?? "pending";
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
    case "wait": return n.waitId ? `the sleep ${n.waitId} is over` : "the sleep is over";
    case "start_delay": return "it starts";
    case "rate": return r ? `${waiter(r)} may begin` : "the rate allows it";
    case "stranded": return "the sweeper wakes it";
    default: return r?.stepId ? `the call of step ${step(r)} is repeated` : "the call is repeated";
  }
}

function setLimit(r: Reason): string {
  const set = `limits set ${quote(r.limit ?? "")}`;
  if (r.kind === "limit_paused") return `${set} --no-paused`;
  if (r.kind === "rate") return `${set} --rate N/TIME`;
  return `${set} ${r.inAll ? "--total" : "--per-key"} ${(r.slots ?? 0) + 1}`;
}

const commands: Record<Remedy, (run: string, r: Reason) => string> = {
  retryMessage: (_, r) => `messages retry ${r.messageId ?? ""}`,
  discardMessage: (_, r) => `messages discard ${r.messageId ?? ""}`,
  putDeployment: (_, r) => `deployments ${r.kind === "unreachable" ? "move" : "add"} ${quote(r.deployment ?? "")} URL${r.kind === "deployment_full" ? ` --max-concurrent ${(r.slots ?? 0) + 1}` : ""}`,
  resumeHook: (run, r) => r.kind === "approval" ? `hooks approve ${run} ${quote(r.hookId ?? "")}` : `hooks resume ${quote(r.hookId ?? "")} --run ${run} --payload JSON`,
  postSignal: (_, r) => `signals send ${quote(r.name ?? "")} --data JSON`,
  sendMessage: (run, r) => `runs send ${run} ${quote(r.name ?? "")} --payload JSON`,
  putLimit: (_, r) => setLimit(r),
  putProject: (_, r) => `projects resume ${quote(r.name ?? "")}`,
  explainRun: (_, r) => `why ${r.childId ?? ""}`,
  cancelRun: (run) => `runs cancel ${run}`,
};

// commandsOf returns the command that explains the run, and those of all remedies, one a line.
export function commandsOf(e: Explanation): string {
  const all = e.reasons.flatMap((r) => r.remedies.map((name) => commands[name]?.(e.runId, r)));
  return [...new Set([`why ${e.runId}`, ...all])].filter(Boolean).map((c) => `stepwell ${c}`).join("\n");
}
