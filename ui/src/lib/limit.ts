// Limits in words: what they bound, and the commands that set limits and policies.
import type { LimitSpec, PolicyUse } from "../api.gen";
import { quote } from "./shell";

// boundsOf says what a limit bounds: 5 per key · 100 in 1m, 10 at once.
export function boundsOf(l: LimitSpec): string {
  return [
    l.perKey && `${l.perKey.toLocaleString("en")} per key`, l.total && `${l.total.toLocaleString("en")} in all`,
    l.rate && `${l.rate.limit.toLocaleString("en")} in ${l.rate.per}${(l.rate.burst ?? 1) > 1 ? `, ${l.rate.burst} at once` : ""}`,
  ].filter(Boolean).join(" · ");
}

// keyName returns a key as it is shown: the empty one has a name.
export function keyName(key: string): string {
  return key === "" ? "without a key" : key;
}

// setCommand returns the command that sets all settings of a limit.
export function setCommand(name: string, l: LimitSpec): string {
  const words = ["stepwell limits set", quote(name)];
  if (l.perKey) words.push(`--per-key ${l.perKey}`);
  if (l.total) words.push(`--total ${l.total}`);
  if (l.rate) words.push(`--rate ${quote(`${l.rate.limit}/${l.rate.per}`)}`);
  if (l.rate?.burst) words.push(`--burst ${l.rate.burst}`);
  if (l.fair) words.push("--fair");
  if (l.onFull && l.onFull !== "wait") words.push(`--on-full ${l.onFull}`);
  if (l.paused) words.push("--paused");
  return words.join(" ");
}

// useText is a limit of a policy as the command line takes it, and what else there is.
export function useText(u: PolicyUse): string {
  return u.name + (u.key ? `=${u.key}` : "") + (u.tenant ? ` by ${u.tenant}` : "") + ((u.cost ?? 0) > 1 ? ` x${u.cost}` : "");
}

// useFlags returns limits and a priority as the command line takes them.
export function useFlags(uses: PolicyUse[], priority: string): string[] {
  const words: string[] = [];
  for (const u of uses) words.push(`--limit ${quote(u.name + (u.key ? `=${u.key}` : ""))}`);
  for (const u of uses) if (u.tenant) words.push(`--tenant ${quote(`${u.name}=${u.tenant}`)}`);
  for (const u of uses) if (u.cost) words.push(`--cost ${quote(`${u.name}=${u.cost}`)}`);
  if (priority) words.push(`--priority=${quote(priority)}`);
  return words;
}

// policyCommand returns the command that sets a policy.
export function policyCommand(workflow: string, uses: PolicyUse[], priority: string): string {
  return ["stepwell policies set", quote(workflow), ...useFlags(uses, priority)].join(" ");
}
