// Triggers in words: what they wait for, how they stand, what became of events, and the command that makes one.
import type { Trigger, TriggerEvent, TriggerOn, TriggerSpec } from "../api.gen";
import { useFlags } from "./limit";
import { quote } from "./shell";
import type { Look, State } from "./status";

// waitsFor says what a trigger waits for, as the command line does.
export function waitsFor(on: TriggerOn): string {
  if (on.signal) return `signal ${on.signal.name}`;
  if (on.webhook) return ["webhook", on.webhook.verify].filter(Boolean).join(" ");
  return `end of ${on.runEnded?.workflow}: ${(on.runEnded?.statuses ?? []).join(", ")}`;
}

// conditionOf returns what must be true of the event; empty for nothing, and for readers who may not see it.
export function conditionOf(on: TriggerOn): string {
  return (on.signal ?? on.webhook ?? on.runEnded)?.condition ?? "";
}

// Waits is what a trigger waits for as a form has it: an empty text is the default.
export interface Waits {
  kind: keyof TriggerOn;
  source: string;
  condition: string;
  statuses: string;
  verify: string;
  secret: string;
  respond: string;
}

// waitsOf returns what a trigger waits for, for a form. A new trigger waits for signals.
export function waitsOf(on: TriggerOn): Waits {
  const { verify = "", secret = "", respond = "" } = on.webhook ?? {};
  return {
    kind: on.webhook ? "webhook" : on.runEnded ? "runEnded" : "signal", source: on.signal?.name ?? on.runEnded?.workflow ?? "",
    condition: conditionOf(on), statuses: on.runEnded?.statuses?.join(", ") ?? "", verify, secret, respond,
  };
}

// onOf returns what a trigger waits for from what a form says.
export function onOf({ kind, source, condition: text, statuses, verify, secret, respond }: Waits): TriggerOn {
  const condition = text ? { condition: text } : {};
  const ends = statuses.split(/[\s,]+/).filter(Boolean) as NonNullable<NonNullable<TriggerOn["runEnded"]>["statuses"]>;
  if (kind === "signal") return { signal: { name: source, ...condition } };
  if (kind === "runEnded") return { runEnded: { workflow: source, ...(ends.length > 0 && { statuses: ends }), ...condition } };
  type Scheme = NonNullable<NonNullable<TriggerOn["webhook"]>["verify"]>;
  return { webhook: { ...(verify && { verify: verify as Scheme, secret }), ...(respond && { respond }), ...condition } };
}

export function stateOfTrigger(t: Trigger): State {
  return t.pausedAt ? { look: "cancelled", word: "paused" } : { look: "running", word: "active" };
}

const looks: Record<TriggerEvent["decision"], Look> = {
  started: "completed", joined: "completed", collected: "waiting", skipped: "cancelled", refused: "failed", retrying: "retrying",
};

// lookOfOutcome returns the glyph of what became of an event. A newer server may have others.
export function lookOfOutcome(d: TriggerEvent["decision"]): Look {
  return looks[d] ?? "pending";
}

// ruleText returns how starts are collected as the command line takes it: quiet=5s,max=1m.
export function ruleText(rule: object): string {
  return Object.entries(rule).map(([k, v]) => `${k}=${v}`).join(",");
}

// putCommand returns the command that stores a trigger with an input, as it was written; empty for none.
export function putCommand(name: string, { on, start }: TriggerSpec, input: string): string {
  const words = ["stepwell triggers put", quote(name), quote(start.workflow || "WORKFLOW")];
  const add = (flag: string, value: string | undefined) => value && words.push(flag, quote(value));
  if (on.webhook) words.push("--webhook");
  add("--signal", on.signal?.name);
  add("--run-ended", on.runEnded?.workflow);
  add("--status", on.runEnded?.statuses?.join(","));
  add("--condition", conditionOf(on));
  add("--verify", on.webhook?.verify);
  add("--secret", on.webhook?.secret);
  add("--respond", on.webhook?.respond);
  add("--deployment", start.deployment);
  add("--key", start.key);
  add("--on-conflict", start.onConflict);
  add("--timeout", start.timeout);
  for (const [key, value] of Object.entries(start.attributes ?? {})) add("--attr", `${key}=${value}`);
  words.push(...useFlags(start.limits ?? [], start.priority ?? ""));
  add("--delay", start.delay);
  add("--idempotency-key", start.idempotencyKey);
  add("--debounce", start.debounce && ruleText(start.debounce));
  add("--batch", start.batch && ruleText(start.batch));
  add("--input", input);
  return words.join(" ");
}
