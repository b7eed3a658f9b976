// The filter of the list of runs. Its text is what the URL has, what one types, and what the chips show:
//
//   workflow:order status:failed,running is:stuck created:24h customer=7 tier="very gold" "a name"=x
//
// A relative time stays relative.
import type { Api, Need, RunStatus } from "../api.gen";
import { parseDuration } from "./duration";
import { quote } from "./shell";

export const statuses: RunStatus[] = ["pending", "running", "completed", "failed", "cancelled"];

// needs are what runs need that have not ended.
export const needs: Need[] = ["stuck", "retrying", "waiting"];

// The fields of a filter, besides attributes.
export const fields = ["workflow", "status", "is", "deployment", "error", "key", "parent", "created", "before", "ended", "endedbefore"] as const;
export type Field = (typeof fields)[number];

export interface Term {
  // Exactly one of these is set.
  field?: Field;
  attribute?: string;
  value: string;
}

// Filter is a list of terms. It has each field and each attribute at most once.
export type Filter = Term[];

export interface Parsed {
  filter: Filter;
  // Why the text is no filter; empty if it is one.
  problem: string;
}

// parseFilter parses the text of a filter. The ID of a run is no filter: see [runIdIn].
export function parseFilter(text: string): Parsed {
  const filter: Filter = [];
  for (const word of split(text)) {
    const match = /^([^:="]+|"(?:[^"\\]|\\.)+"(?==))([:=])([^]*)$/.exec(word);
    if (!match) return { filter, problem: `“${word}” is not a filter: write workflow:NAME, status:failed or attribute=value` };
    const [, name = "", sign, raw = ""] = match;
    const value = unquote(raw);
    const term: Term = sign === "=" ? { attribute: unquote(name), value } : { field: name as Field, value };
    const problem = problemOf(term);
    if (problem) return { filter, problem };
    put(filter, term);
  }
  return { filter, problem: "" };
}

function problemOf(t: Term): string {
  if (t.attribute !== undefined) return "";
  if (!fields.includes(t.field!)) return `“${t.field}” is not a field: the fields are ${fields.join(", ")}, and attribute=value`;
  if (t.value === "") return `${t.field} has no value`;
  const none = t.field === "status" && t.value.split(",").find((s) => !statuses.includes(s as RunStatus));
  if (none || none === "") return `“${none}” is not a status: the statuses are ${statuses.join(", ")}`;
  if (t.field === "is" && !needs.includes(t.value as Need)) return `“${t.value}” is nothing that runs are: write is:stuck, is:retrying or is:waiting`;
  if (["created", "before", "ended", "endedbefore"].includes(t.field!) && timeOf(t.value, 0) === null) {
    return `“${t.value}” is not a time: write an age such as 24h, or 2026-11-22T14:00:00Z`;
  }
  return "";
}

// split returns the words of a text. Spaces in quotes do not separate words.
function split(text: string): string[] {
  return text.match(/(?:"(?:[^"\\]|\\.)*"|\S)+/g) ?? [];
}

function unquote(text: string): string {
  if (!text.startsWith('"') || !text.endsWith('"') || text.length < 2) return text;
  return text.slice(1, -1).replace(/\\(.)/g, "$1");
}

function put(filter: Filter, term: Term): void {
  const at = filter.findIndex((t) => t.field === term.field && t.attribute === term.attribute);
  if (at < 0) filter.push(term);
  else filter[at] = term;
}

// formatTerm returns the text of a term.
export function formatTerm(t: Term): string {
  const value = /^[^\s"\\]+$/.test(t.value) ? t.value : quoted(t.value);
  if (t.attribute === undefined) return `${t.field}:${value}`;
  return `${/^[^\s:="\\]+$/.test(t.attribute) ? t.attribute : quoted(t.attribute)}=${value}`;
}

function quoted(text: string): string {
  return `"${text.replace(/["\\]/g, "\\$&")}"`;
}

// formatFilter returns the text of a filter, of which parseFilter makes the same filter.
export function formatFilter(f: Filter): string {
  return f.map(formatTerm).join(" ");
}

// withTerm returns the filter with a term added or replaced.
export function withTerm(f: Filter, term: Term): Filter {
  const copy = [...f];
  put(copy, term);
  return copy;
}

// withoutTerm returns the filter without a term.
export function withoutTerm(f: Filter, term: Term): Filter {
  return f.filter((t) => t.field !== term.field || t.attribute !== term.attribute);
}

// valueOf returns the value of a field; empty if the filter does not have it.
export function valueOf(f: Filter, field: Field): string {
  return f.find((t) => t.field === field)?.value ?? "";
}

// statusesOf returns the statuses that the filter names.
export function statusesOf(f: Filter): RunStatus[] {
  const value = valueOf(f, "status");
  return value === "" ? [] : (value.split(",") as RunStatus[]);
}

// withStatus returns the filter with a status added to those that it names, or taken out.
export function withStatus(f: Filter, status: RunStatus): Filter {
  const named = statusesOf(f);
  const value = statuses.filter((s) => named.includes(s) !== (s === status)).join(",");
  const term: Term = { field: "status", value };
  return value === "" ? withoutTerm(f, term) : withTerm(f, term);
}

// needOf returns what the runs need that the filter selects; empty if it selects by nothing of the kind.
export function needOf(f: Filter): Need | "" {
  return valueOf(f, "is") as Need | "";
}

// withNeed returns the filter with a need instead of statuses, or without it if the filter has it: runs that have ended need
// nothing.
export function withNeed(f: Filter, need: Need): Filter {
  const term: Term = { field: "is", value: need };
  return needOf(f) === need ? withoutTerm(f, term) : withTerm(withoutTerm(f, { field: "status", value: "" }), term);
}

// timeOf returns a time that is an age or a time itself, or null. A time without a zone is UTC, so that a link means the
// same in every browser.
export function timeOf(value: string, now: number): Date | null {
  const age = parseDuration(value);
  if (age !== null) return new Date(now - age);
  const at = new Date(/T[\d:.]+$/.test(value) ? `${value}Z` : value);
  return /^\d{4}-/.test(value) && !Number.isNaN(at.getTime()) ? at : null;
}

type Query = Api["GET /v1/runs"]["query"];

// queryOf returns the parameters with which the API lists what matches.
export function queryOf(f: Filter, now: number): Query {
  const query: Query = {};
  for (const t of f) {
    if (t.attribute !== undefined) query[`attribute.${t.attribute}`] = t.value;
    else if (t.field === "status") query.status = statusesOf(f);
    else if (t.field === "is") query.need = t.value as Need;
    else if (t.field === "error") query.errorCode = t.value;
    else if (t.field === "parent") query.parentId = t.value;
    else if (t.field === "created") query.createdAfter = timeOf(t.value, now)?.toISOString();
    else if (t.field === "before") query.createdBefore = timeOf(t.value, now)?.toISOString();
    else if (t.field === "ended") query.endedAfter = timeOf(t.value, now)?.toISOString();
    else if (t.field === "endedbefore") query.endedBefore = timeOf(t.value, now)?.toISOString();
    else if (t.field) query[t.field] = t.value;
  }
  return query;
}

// countQueryOf returns the parameters that count a list: by end, it has no open runs, and by need no others.
export function countQueryOf(f: Filter, orderBy: "created" | "ended" | "need", now: number): Query {
  const listed: RunStatus[] = orderBy === "need" ? ["pending", "running"] : ["completed", "failed", "cancelled"];
  const named = statusesOf(f);
  const value = listed.filter((s) => named.length === 0 || named.includes(s)).join(",");
  return queryOf(orderBy !== "created" && value ? withTerm(f, { field: "status", value }) : f, now);
}

// mostTried is how many terms of a filter that no run matches are left out in turn: each costs a count.
export const mostTried = 8;

const flags: Record<Field, string> = {
  workflow: "--workflow", status: "--status", is: "--need", deployment: "--deployment", error: "--error-code", key: "--key", parent: "--parent",
  created: "--created-after", before: "--created-before", ended: "--ended-after", endedbefore: "--ended-before",
};

// flagsOf returns the flags of a command line that select what matches.
export function flagsOf(f: Filter): string {
  return f.flatMap((t) => {
    if (t.attribute !== undefined) return [`--attr ${quote(`${t.attribute}=${t.value}`)}`];
    return (t.field === "status" ? t.value.split(",") : [t.value]).map((v) => `${flags[t.field!]} ${quote(v)}`);
  }).join(" ");
}

// commandOf returns the command line that lists what matches.
export function commandOf(f: Filter): string {
  return ["stepwell runs list", flagsOf(f)].filter(Boolean).join(" ");
}

// runIdIn returns the ID of a run if the text is one, or null.
export function runIdIn(text: string): string | null {
  const id = text.trim();
  return /^wrun_[0-9A-Za-z]{26}$/.test(id) ? id : null;
}

// attributesIn returns the attributes in a text, such as customer=7 tier="very gold", and why it has none.
export function attributesIn(text: string): { attributes: Record<string, string>; problem: string } {
  const { filter, problem } = parseFilter(text);
  const attributes = Object.fromEntries(filter.filter((t) => t.attribute !== undefined).map((t) => [t.attribute!, t.value]));
  return { attributes, problem: problem || filter.some((t) => t.field) ? "Write attributes as customer=7 tier=gold." : "" };
}

// attributesOf returns attributes as a text of that kind.
export function attributesOf(attributes: Record<string, string> | undefined): string {
  return formatFilter(Object.entries(attributes ?? {}).map(([attribute, value]) => ({ attribute, value })));
}
