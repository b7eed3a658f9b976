// The error of a run or a step, as its payload has it.
import { member, type JsonValue } from "./jsontext";

export interface Failure {
  code: string;
  message: string;
  stack: string;
  // What else the function has said; undefined if nothing.
  rest?: JsonValue;
}

// failureOf reads an error; null if the value is none. The stack is in the details, as the Go SDK writes it, or beside the
// message, as JavaScript has it. Some errors are only a text.
export function failureOf(v: JsonValue | undefined): Failure | null {
  if (v?.kind === "string") return { code: "", message: text(v), stack: "" };
  if (v?.kind !== "object" || member(v, "message")?.kind !== "string") return null;
  const details = member(v, "details");
  const stack = text(member(v, "stack")) || text(member(details, "stack"));
  const code = text(member(v, "code"));
  const shown = ["message", "stack", "details", code ? "code" : "name"];
  const others = v.entries.filter((e) => !shown.includes(e.key));
  const more = details?.kind === "object" ? details.entries.filter((e) => e.key !== "stack" || e.value.kind !== "string") : [];
  const entries = [...others, ...more];
  const rest = details && details.kind !== "object" ? details : entries.length > 0 ? { kind: "object" as const, entries } : undefined;
  return { code: code || text(member(v, "name")), message: text(member(v, "message")), stack, rest };
}

function text(v: JsonValue | undefined): string {
  return v?.kind === "string" ? (JSON.parse(v.text) as string) : "";
}
