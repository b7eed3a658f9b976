// Cancelling and rerunning many runs. This is the one place that knows how the API takes them: by ID one by one, by
// filter up to 1,000 at a time.
import type { Api, RunStatus } from "../api.gen";
import { formatFilter, statusesOf, timeOf, type Filter } from "./filter";

export type Action = "cancel" | "rerun";

const open: RunStatus[] = ["pending", "running"];
const ended: RunStatus[] = ["completed", "failed", "cancelled"];

// canDo reports whether an action applies to a run in a state.
export function canDo(action: Action, status: RunStatus): boolean {
  return (action === "cancel" ? open : ended).includes(status);
}

// statusesFor returns in which states an action takes the runs of a filter; of them all, only failed ones are rerun.
export function statusesFor(action: Action, f: Filter): RunStatus[] {
  const named = statusesOf(f);
  if (action === "cancel") return open.filter((s) => named.length === 0 || named.includes(s));
  return named.length === 0 ? ["failed"] : ended.filter((s) => named.includes(s));
}

type Conditions = Omit<Api["POST /v1/runs/cancel"]["body"], "reason" | "dryRun" | "limit" | "status"> & { errorCode?: string; endedBefore?: string };

// conditionsOf returns the filter as bulk operations take it, apart from the status, and why they cannot. Only runs that
// were created before a time match, and that had ended by then if they are rerun: those that come meanwhile are left alone.
export function conditionsOf(f: Filter, action: Action, before: Date): { conditions: Conditions; problem: string } {
  const conditions: Conditions = { createdBefore: before.toISOString(), ...(action === "rerun" && { endedBefore: before.toISOString() }) };
  let problem = "";
  const attributes: Record<string, string> = {};
  for (const t of f) {
    if (t.attribute !== undefined) attributes[t.attribute] = t.value;
    else if (t.field === "workflow" || t.field === "key") conditions[t.field] = t.value;
    else if (t.field === "parent") conditions.parentId = t.value;
    else if (t.field === "created") conditions.createdAfter = timeOf(t.value, before.getTime())!.toISOString();
    else if (t.field === "before") conditions.createdBefore = earlier(timeOf(t.value, before.getTime())!, before).toISOString();
    else if (t.field === "error" && action === "rerun") conditions.errorCode = t.value;
    else if (t.field !== "status") problem = `All that match cannot be changed with the filter “${t.field}”: select runs, or remove it.`;
  }
  if (Object.keys(attributes).length > 0) conditions.attributes = attributes;
  return { conditions, problem };
}

function earlier(a: Date, b: Date): Date {
  return a < b ? a : b;
}

// Batch is the result of one request, or of a few for single runs.
export interface Batch {
  // How many runs it looked at, and how many of them it changed.
  matched: number;
  changed: number;
  // Those that it did not change, as far as they are known.
  refused: Array<{ runId: string; message: string }>;
}

// Send calls an operation of the API.
export type Send = (operation: string, path: Record<string, string>, body: Record<string, unknown>) => Promise<unknown>;

export interface Options {
  reason?: string;
  deployment?: string;
  // Names the whole of it: what is repeated starts no run twice.
  idempotencyKey: string;
}

const together = 5;

// eachOf acts on single runs, a few at a time. It fails when a refusal is not about one run, such as the end of a session:
// those that it had no answer for can be sent again.
export async function* eachOf(send: Send, action: Action, ids: string[], o: Options): AsyncGenerator<Batch> {
  for (let i = 0; i < ids.length; i += together) {
    const part = ids.slice(i, i + together);
    const results = await Promise.allSettled(part.map((id) => send(`POST /v1/runs/{id}/${action}`, { id },
      action === "cancel" ? given({ reason: o.reason }) : given({ deployment: o.deployment, idempotencyKey: `${o.idempotencyKey}:${id}` }))));
    const failed = results.find((r) => r.status === "rejected" && concernsAll(r.reason as { status?: number }));
    if (failed) throw (failed as PromiseRejectedResult).reason;
    const refused = results.flatMap((r, n) => (r.status === "rejected" ? [{ runId: part[n]!, message: String((r.reason as Error).message) }] : []));
    yield { matched: part.length, changed: part.length - refused.length, refused };
  }
}

function concernsAll({ status = 400 }: { status?: number }): boolean {
  return [0, 401, 403, 421, 429].includes(status) || status >= 500;
}

export const batchSize = 100;

// allThatMatch acts on all runs that match, a batch at a time. What stops asking for batches stops it.
export async function* allThatMatch(
  send: Send, action: Action, statuses: RunStatus[], conditions: Conditions, o: Options,
): AsyncGenerator<Batch> {
  for (const status of statuses) {
    let cursor: string | undefined;
    for (let more = true; more;) {
      const filter = { ...conditions, status };
      const body = action === "cancel"
        ? { ...filter, ...given({ reason: o.reason }), limit: batchSize }
        : { filter, ...given({ deployment: o.deployment, cursor }), idempotencyKey: o.idempotencyKey, limit: batchSize };
      const answer = (await send(`POST /v1/runs/${action}`, {}, body)) as {
        matched: number; cancelled?: number; started?: number; refused?: Batch["refused"]; more: boolean; cursor?: string;
      };
      yield { matched: answer.matched, changed: answer.cancelled ?? answer.started ?? 0, refused: answer.refused ?? [] };
      cursor = answer.cursor;
      more = answer.more && (answer.matched > 0 || cursor !== undefined);
    }
  }
}

function given(fields: Record<string, string | undefined>): Record<string, string> {
  return Object.fromEntries(Object.entries(fields).filter((f): f is [string, string] => !!f[1]));
}

// The number above which a person types how many runs are meant.
export const typedAbove = 100;

// Begun names a batch of reruns, and says which runs it is about: those of before. Done is when all were started.
export interface Begun {
  key: string;
  before: string;
  done?: string;
}

type Kept = Pick<Storage, "getItem" | "setItem">;

const keptFor = 24 * 3600_000;

// begun returns the batch that the browser keeps under a name, if it was not done at a time: another tab works on it, or
// the page or an answer got lost. To go on with it starts no run twice.
export function begun(kept: () => Kept, name: string, at: string): Begun | null {
  try {
    const b = JSON.parse(kept().getItem(name) ?? "null") as Begun | null;
    return b && Date.parse(at) - Date.parse(b.before) < keptFor && (!b.done || b.done > at) ? b : null;
  } catch {
    return null; // the browser keeps nothing for this page
  }
}

export function keep(kept: () => Kept, name: string, b: Begun): void {
  try {
    kept().setItem(name, JSON.stringify(b));
  } catch {
    // as above
  }
}

// nameOf returns the name under which a batch of reruns is kept. Times do not count: those of a group of failures move.
export function nameOf(project: string, f?: Filter): string {
  return `stepwell.rerun.${project}.${f ? formatFilter(f.filter((t) => t.field !== "created" && t.field !== "before")) : "selected"}`;
}
