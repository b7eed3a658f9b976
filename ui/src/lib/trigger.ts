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
