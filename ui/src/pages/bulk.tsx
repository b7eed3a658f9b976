// The dialog that cancels or reruns many runs: first what would happen, then in batches, which one may stop.
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { addressOf, call, server, type Operation } from "../api";
import { clock } from "../clock";
import type { Run } from "../api.gen";
import {
  allThatMatch, begun, canDo, conditionsOf, eachOf, keep, nameOf, statusesFor, typedAbove, type Action, type Batch, type Begun, type Send,
} from "../lib/bulk";
import { formatCount, runs, type Count } from "../lib/counts";
import { flagsOf, queryOf, type Filter } from "../lib/filter";
import { Problem } from "../lib/problem";
import { curl, quote } from "../lib/shell";
import { project } from "../location";
import { Commands } from "../parts/copy";
import { useModal } from "../parts/dialog";
import { Loading, Trouble } from "../parts/notice";
import { Clock } from "../parts/time";
import { useResource } from "../resource";

// Target is what an action is about: runs that were selected, or all that match a filter.
export type Target = { selected: Run[] } | { filter: Filter };

export interface BulkProps {
  action: Action;
  target: Target;
  // What else one must know about the target.
  note?: string;
  done: () => void;
  close: () => void;
}

const words = {
  cancel: { title: "Cancel runs", verb: "Cancel", past: "cancelled", can: "have not ended", left: "have ended" },
  rerun: { title: "Start copies of runs", verb: "Rerun", past: "started again", can: "can be rerun", left: "cannot" },
};

// preview returns how many runs are meant, and how many of them the action changes.
async function preview(project: string, action: Action, t: Target, before: Date, signal: AbortSignal): Promise<{ all: Count; will: Count }> {
  if ("selected" in t) {
    const exact = (list: Run[]) => ({ count: list.length, atLeast: false });
    return { all: exact(t.selected), will: exact(t.selected.filter((r) => canDo(action, r.status))) };
  }
  const status = statusesFor(action, t.filter);
  const { createdBefore, endedBefore } = conditionsOf(t.filter, action, before).conditions;
  const query = { ...queryOf(t.filter, before.getTime()), createdBefore };
  const count = (q: typeof query) => call(project, "GET /v1/runs/count", { query: q, signal });
  const all = await count(query);
  return { all, will: status.length > 0 ? await count({ ...query, status, ...(endedBefore && { endedBefore }) }) : { count: 0, atLeast: false } };
}

const storage = () => localStorage;

// sender returns what calls operations in one project, whatever the address is meanwhile.
const sender = (project: string): Send => (operation, path, body) => call(project, operation as Operation, { path, body } as object);

export function Bulk({ action, target, note, done, close: closed }: BulkProps) {
  const { modal, close } = useModal(closed);
  const of = useSignal(project.value).value; // the dialog is about this project
  const state = useSignal<"asking" | "working" | "stopping" | "failed" | "ended">("asking");
  const stop = () => {
    if (state.peek() === "working") state.value = "stopping";
  };
  useLayoutEffect(() => stop, []);
  const w = words[action];
  const option = useSignal("");
  const typed = useSignal("");
  const name = nameOf(of, "filter" in target ? target.filter : undefined);
  const opened = useSignal(new Date(clock.now()).toISOString()).value;
  const found = useSignal(action === "rerun" ? begun(storage, name, opened) : null).value;
  const batch = useSignal<Begun>(found ?? { key: crypto.randomUUID?.() ?? String(Math.random()), before: opened });
  const before = new Date(batch.value.before); // runs that come later are left alone
  const left = useSignal("selected" in target ? target.selected.filter((r) => canDo(action, r.status)).map((r) => r.id) : []);
  const sum = useSignal<Batch>({ matched: 0, changed: 0, refused: [] });
  const failure = useSignal<Problem | null>(null);
  const counts = useResource((signal) => preview(of, action, target, before, signal), []);
  const limits = "filter" in target ? conditionsOf(target.filter, action, before) : { conditions: {}, problem: "" };
  const c = counts.data.value;
  const blocked = limits.problem || (!c ? "" : c.will.count === 0 ? "There is nothing to do." :
    c.will.count > typedAbove && typed.value.replace(/[,\s+]/g, "") !== String(c.will.count) ? "Type the number to go on." : "");
  const work = async (e: Event) => {
    e.preventDefault();
    if (blocked || !c || (state.value !== "asking" && state.value !== "failed")) return;
    state.value = "working";
    failure.value = null;
    if ("filter" in target) sum.value = { ...sum.value, refused: [] }; // they are refused again
    if (action === "rerun") {
      batch.value = begun(storage, name, opened) ?? batch.value; // another tab may have begun it meanwhile
      keep(storage, name, batch.value);
    }
    const send = sender(of);
    const options = { idempotencyKey: batch.value.key, ...(action === "cancel" ? { reason: option.value } : { deployment: option.value }) };
    const batches = "selected" in target
      ? eachOf(send, action, left.value, options)
      : allThatMatch(send, action, statusesFor(action, target.filter),
        conditionsOf(target.filter, action, new Date(batch.value.before)).conditions, options);
    try {
      for await (const b of batches) {
        const s = sum.value;
        sum.value = { matched: s.matched + b.matched, changed: s.changed + b.changed, refused: [...s.refused, ...b.refused].slice(0, 100) };
        left.value = left.value.slice(b.matched);
        if (state.peek() !== "working") break;
      }
      if (action === "rerun" && state.peek() === "working") keep(storage, name, { ...batch.value, done: new Date(clock.now()).toISOString() });
    } catch (err) {
      failure.value = err instanceof Problem ? err : new Problem(-1, "page", String(err));
    }
    state.value = failure.value ? "failed" : "ended";
    done();
  };
  return (
    <dialog {...modal} aria-labelledby="bulk-title">
      <form onSubmit={work}>
        <h2 id="bulk-title">{w.title}</h2>
        {counts.problem.value && <Trouble problem={counts.problem.value} retry={counts.refresh} />}
        {!c && !counts.problem.value && <Loading what="how many runs are meant" />}
        {c && <p><strong>{runs(c.all)} {"selected" in target ? "selected" : c.all.count === 1 ? "matches" : "match"}</strong>, {formatCount(c.will)} {w.can};{" "}
          {formatCount({ count: Math.max(0, c.all.count - c.will.count), atLeast: c.all.atLeast })} will be left alone
          {action === "rerun" && "filter" in target && statusesFor(action, target.filter).join() === "failed" ? ": only failed runs are rerun, unless the filter names other states." : "."}</p>}
        {note && <p>{note}</p>}
        {found && <p class="warning">This goes on with what was begun at <Clock at={found.before} />: runs of which that has started copies are left out.</p>}
        {state.value === "asking" && c && c.will.count > 0 && !limits.problem && <Question action={action} count={c.will} option={option.value}
          change={(v) => (option.value = v)} typed={typed.value} type={(v) => (typed.value = v)} />}
        {state.value === "asking" && "filter" in target && <Commands {...commandsOf(action, target.filter, limits.conditions, option.value)} />}
        {state.value !== "asking" && c && <Result w={w} sum={sum.value} of={c.will} state={state.value} />}
        {failure.value && <Trouble problem={failure.value} />}
        <div class="buttons">
          {state.value === "asking" && blocked && <span class="quiet">{blocked}</span>}
          {(state.value === "working" || state.value === "stopping") && <span class="quiet">Closing the page stops it, too.</span>}
          {state.value === "working" && <button type="button" onClick={stop}>Stop</button>}
          <button type="button" onClick={close}>Close</button>
          {(state.value === "asking" || state.value === "failed") && <button type="submit" class={action === "cancel" ? "danger" : "primary"} disabled={!c || blocked !== ""}>
            {state.value === "failed" ? "Go on" : `${w.verb} ${c ? runs(c.will) : "…"}`}</button>}
        </div>
      </form>
    </dialog>
  );
}

interface QuestionProps {
  action: Action;
  count: Count;
  option: string;
  change: (v: string) => void;
  typed: string;
  type: (v: string) => void;
}

function Question({ action, count, option, change, typed, type }: QuestionProps) {
  return (
    <>
      {action === "cancel" && <p>They end at once, and so do their children. This cannot be undone.</p>}
      {action === "cancel"
        ? <label>Reason, kept with each run<input name="reason" value={option} maxLength={1024} onInput={(e) => change(e.currentTarget.value)} /></label>
        : <label>Deployment<input name="deployment" value={option} placeholder="that of each run" onInput={(e) => change(e.currentTarget.value.trim())} /></label>}
      {count.count > typedAbove && <label>Type {count.count} to go on
        <input name="typed" value={typed} inputMode="numeric" autocomplete="off" onInput={(e) => type(e.currentTarget.value)} /></label>}
    </>
  );
}

function Result({ w, sum, of, state }: { w: (typeof words)[Action]; sum: Batch; of: Count; state: string }) {
  return (
    <>
      {(state === "working" || state === "stopping") && <progress value={sum.matched} max={Math.max(of.count, sum.matched)} aria-label="Runs done" />}
      <p role="status">
        {state === "ended" || state === "failed" ? <strong>{runs({ count: sum.changed, atLeast: false })} {w.past}.</strong>
          : `${sum.matched.toLocaleString("en")} of ${formatCount(of)} done${state === "stopping" ? ", stopping after this batch" : ""} …`}
        {state === "ended" && sum.matched > sum.changed && ` ${(sum.matched - sum.changed).toLocaleString("en")} were not.`}
      </p>
      {sum.refused.length > 0 && <ul class="refused">{sum.refused.map((r) => <li><code>{r.runId}</code> {r.message}</li>)}</ul>}
    </>
  );
}

function commandsOf(action: Action, filter: Filter, conditions: object, option: string): { cli: string; curl: string } {
  const flag = option === "" ? "" : action === "cancel" ? ` --reason ${quote(option)}` : ` --deployment ${quote(option)}`;
  const body = action === "cancel" ? { ...conditions, ...(option && { reason: option }) } : { filter: conditions, ...(option && { deployment: option }) };
  return {
    cli: `stepwell runs ${action} ${flagsOf(filter)}${flag} --dry-run`,
    curl: curl(server, "POST", addressOf(`POST /v1/runs/${action}` as Operation, {}), JSON.stringify({ ...body, dryRun: true })),
  };
}
