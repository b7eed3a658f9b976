// Messages of the queue, in words.
import type { Message } from "../api.gen";
import { titleOfId } from "./names";
import type { State } from "./status";

// stateOfMessage returns the state of a message at a time. One that failed and waits is retrying.
export function stateOfMessage(m: Message, now: number): State {
  if (m.state === "parked") return { look: "failed", word: "parked" };
  if (m.state === "leased") return { look: "running", word: "being delivered" };
  if (m.lastError || m.deliveryCount > 0) return { look: "retrying", word: "retrying" };
  return Date.parse(m.dueAt) > now ? { look: "waiting", word: "delayed" } : { look: "pending", word: "due" };
}

const works: Record<string, string> = {
  run: "call the run’s function", step: "call step", report: "report the child of", deadline: "end the run at its deadline",
  cancel: "cancel", end: "follow the run’s end", lookback: "look for signals for", signal: "hand over a signal",
  request: "make a request of SQL",
};

// workOf says what a message is for.
export function workOf(m: Message): string {
  if (!m.work) return m.topic;
  return [works[m.work] ?? m.work, titleOfId(m.subject ?? "")].filter(Boolean).join(" ");
}

// errorOf returns why the last delivery failed; empty if none did. The failure of a step is JSON.
export function errorOf(m: Message): string {
  const text = m.lastError ?? "";
  try {
    const failure = JSON.parse(text) as { code?: string; message?: string } | string | null;
    if (typeof failure === "string") return failure;
    return [failure?.code, failure?.message].filter(Boolean).join(": ") || text;
  } catch {
    return text;
  }
}

// cannotRetry tells why a message cannot be retried; empty if it can.
export function cannotRetry(m: Message): string {
  if (m.state === "leased") return "It is being delivered.";
  return m.state === "parked" || m.lastError ? "" : "It has not failed.";
}
