// Approvals: as they are read, what a vote is, and what a refusal of it says at which field.
import type { Api, Approval } from "../api.gen";
import type { Problem } from "./problem";
import { member, parseJson, withValue, type JsonValue } from "./jsontext";

export interface OpenApproval extends Approval {
  // The schema of its form, with numbers as they were written.
  schema?: JsonValue;
}

// approvalsIn returns the approvals of an answer.
export function approvalsIn(text: string): { data: OpenApproval[]; cursor?: string } {
  const answer = JSON.parse(text) as Api["GET /v1/approvals"]["answer"];
  const items = member(parseJson(text), "data");
  const data = answer.data.map((a, i) => ({ ...a, schema: items?.kind === "array" ? member(items.items[i], "form") : undefined }));
  return { data, cursor: answer.cursor };
}

const role = "role:";

// rolesIn returns the roles that may vote.
export const rolesIn = (a: Approval) => (a.by ?? []).filter((name) => name.startsWith(role)).map((name) => name.slice(role.length));

// whoMay says who may vote.
export function whoMay(a: Approval): string {
  const by = (a.by ?? []).map((name) => name.startsWith(role) ? `the role ${name.slice(role.length)}` : name);
  if (by.length === 0) return "everybody with a key";
  return by.length === 1 ? by[0]! : `${by.slice(0, -1).join(", ")} or ${by.at(-1)}`;
}

export interface Ballot {
  decision: "approve" | "reject";
  as: string;
  roles: string[];
  comment: string;
  // JSON; empty for none.
  form: string;
}

// voteOf returns the body of the request that votes.
export function voteOf(b: Ballot): string {
  const vote = { decision: b.decision, ...(b.as && { as: b.as }), ...(b.roles.length > 0 && { roles: b.roles }), ...(b.comment && { comment: b.comment }) };
  return withValue({}, "payload", b.form ? withValue(vote, "form", b.form) : JSON.stringify(vote));
}

export interface Refusal {
  // What to say at the name of the voter.
  name?: string;
  // What to say of the approval: it takes no vote any more.
  over?: string;
  // What does not fit the schema of the form.
  violations?: Array<{ path: string; message: string }>;
}

// refusalOf returns what a refused vote says, in plain words; null for what is not about the vote.
export function refusalOf(p: Problem, a: Approval, as: string): Refusal | null {
  switch (p.code) {
    case "not_an_approver": return {
      name: as.toLowerCase().startsWith("key_") ? "A key votes only for itself: give a name."
        : as ? `${as} may not vote. This approval is for ${whoMay(a)}.` : `This approval is for ${whoMay(a)}: give your name.`,
    };
    case "has_voted": return { name: `${as || "Your key"} has voted on this already, and a vote stands.` };
    case "key_has_voted": return { name: "Your key has voted on this, and each key has one vote here, whatever the name: another key must vote." };
    case "approval_over": case "hook_not_found": case "run_ended": case "run_not_found": return { over: "It is decided, or its run has ended: your vote does not count." };
    case "schema_violated": return Array.isArray(p.details["violations"]) ? { violations: p.details["violations"] as Refusal["violations"] } : null;
    default: return null;
  }
}
