// Compare: two runs side by side.
import { useSignal } from "@preact/signals";
import type { Run, Step } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { tick } from "../clock";
import { barOf } from "../lib/bars";
import { alignSteps, byName, diffJson, isDifferent, timeOfStep, type DiffRow, type Pair } from "../lib/diff";
import { formatDuration } from "../lib/duration";
import { member, parseJson, readable } from "../lib/jsontext";
import { shortId } from "../lib/path";
import { curl } from "../lib/shell";
import { durationOf, stateOfRun, stateOfStep } from "../lib/status";
import { go, href, project, search } from "../location";
import { Commands } from "../parts/copy";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Empty, Loading, Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { listAddress } from "../runlist";
import { may } from "../session";
import { readRun } from "./readrun";

const mostSteps = 5000;
const shownAtOnce = 200;
const mostDifferences = 500;

export function Compare() {
  const [a, b] = [search.value.get("a") ?? "", search.value.get("b") ?? ""];
  return (
    <main class="page">
      <header class="page-head"><h1>Compare runs</h1></header>
      <Choose key={`${a} ${b}`} a={a} b={b} />
      {a && b ? <Both key={`${a} ${b}`} a={a} b={b} /> : <Empty title="Choose two runs"><p>Select two in <a href={listAddress()} data-back>Runs</a>, by their boxes or with <kbd>x</kbd>, and press Compare.</p></Empty>}
    </main>
  );
}

function Choose(p: { a: string; b: string }) {
  const a = useSignal(p.a);
  const b = useSignal(p.b);
  return (
    <form class="choose" onSubmit={(e) => { e.preventDefault(); go(href(["compare"], { a: a.value, b: b.value })); }}>
      <label>A<input class="mono" name="a" value={a.value} placeholder="wrun_…" spellcheck={false} onInput={(e) => (a.value = e.currentTarget.value.trim())} /></label>
      <label>B<input class="mono" name="b" value={b.value} placeholder="wrun_…" spellcheck={false} onInput={(e) => (b.value = e.currentTarget.value.trim())} /></label>
      <button type="submit">Compare</button>
      <button type="button" onClick={() => go(href(["compare"], { a: b.value, b: a.value }))}>Swap</button>
    </form>
  );
}

interface Side {
  run: Run;
  steps: Step[];
  more: boolean;
}

async function readSide(id: string, signal: AbortSignal): Promise<Side> {
  const run = await readRun(id, signal);
  const steps: Step[] = [];
  for (let cursor: string | undefined; ;) {
    const answer = await call(project.value, "GET /v1/runs/{id}/steps", { path: { id }, query: { limit: 1000, ...(cursor && { cursor }) }, signal });
    steps.push(...answer.data);
    cursor = answer.cursor;
    if (!cursor || steps.length >= mostSteps) return { run, steps, more: cursor !== undefined };
  }
}

function Both({ a, b }: { a: string; b: string }) {
  const read = useResource((signal) => Promise.all([readSide(a, signal), readSide(b, signal)]), [project.value, a, b]);
  if (read.problem.value) return <Trouble problem={read.problem.value} retry={read.refresh} />;
  if (!read.data.value) return <Loading what="both runs" />;
  const [left, right] = read.data.value;
  return (
    <div class="parts">
      <table class="list">
        <thead><tr><th><span class="hidden">Side</span></th><th>Run</th><th>Workflow</th><th>Deployment</th><th>Status</th><th class="num">Took</th><th class="num">Events</th></tr></thead>
        <tbody>{[left, right].map((s, i) => (
          <tr>
            <td class="strong">{"AB"[i]}</td>
            <td><a class="mono" href={href(["runs", s.run.id])}>{shortId(s.run.id)}</a></td>
            <td><Name of={s.run.workflow} /></td><td>{s.run.deployment}</td><td><Status {...stateOfRun(s.run, tick.value)} /></td>
            <td class="num" data-label="took">{formatDuration(durationOf(s.run, tick.value))}{i === 1 && <Difference a={durationOf(left.run, tick.value)} b={durationOf(s.run, tick.value)} />}</td>
            <td class="num" data-label="events">{s.run.lastSeq.toLocaleString("en")}</td>
          </tr>
        ))}</tbody>
      </table>
      <h2>Input and output</h2>
      {may("read") ? <Payloads a={left.run} b={right.run} /> : <p class="quiet">Not shown to keys of the role metadata.</p>}
      <h2>Steps</h2>
      {left.more || right.more || left.steps.length + right.steps.length > 2 * mostSteps
        ? <><p class="warning">A run has more than {mostSteps.toLocaleString("en")} steps: the first of each are compared by name.</p><Names a={left.steps} b={right.steps} /></>
        : <Steps a={left} b={right} />}
      <Commands cli={`stepwell steps list ${a}`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/steps", { path: { id: a } }))} />
    </div>
  );
}

// Difference is how much more or less time B took.
function Difference({ a, b }: { a: number; b: number }) {
  if (Number.isNaN(a) || Number.isNaN(b)) return null;
  return <span class="quiet"> {b >= a ? "+" : ""}{formatDuration(b - a)}</span>;
}

function Steps({ a, b }: { a: Side; b: Side }) {
  const only = useSignal(false);
  const shown = useSignal(shownAtOnce);
  const pairs = alignSteps(a.steps, b.steps);
  if (pairs.length === 0) return <p class="quiet">Neither run has steps.</p>;
  const different = pairs.filter(isDifferent);
  const rows = only.value ? different : pairs;
  const begin = (s: Side) => Date.parse(s.run.startedAt ?? s.run.createdAt);
  const length = Math.max(durationOf(a.run, tick.peek()), durationOf(b.run, tick.peek()));
  return (
    <>
      <label class="check"><input type="checkbox" checked={only.value} onChange={(e) => (only.value = e.currentTarget.checked)} />
        Only the {different.length.toLocaleString("en")} of {pairs.length.toLocaleString("en")} that differ</label>
      <table class="list compare">
        <thead><tr><th>Step</th><th>A</th><th>B</th><th class="num">Attempts</th><th class="num">A took</th><th class="num">B took</th>
          <th class="axis">{formatDuration(length)} from the start of each run</th></tr></thead>
        <tbody>{rows.slice(0, shown.value).map((p) => (
          <tr>
            <td class="strong"><Name of={p.name} /></td>
            <td data-label="A">{p.a ? <Status {...stateOfStep(p.a)} /> : <span class="quiet">only in B</span>}</td>
            <td data-label="B">{p.b ? <Status {...stateOfStep(p.b)} /> : <span class="quiet">only in A</span>}</td>
            <td class="num" data-label="attempts">{[...new Set([p.a?.attempt, p.b?.attempt].map((n) => n ?? "–"))].join(" → ")}</td>
            <td class="num" data-label="A took">{formatDuration(timeOfStep(p.a))}</td>
            <td class="num" data-label="B took">{formatDuration(timeOfStep(p.b))}<Difference a={timeOfStep(p.a)} b={timeOfStep(p.b)} /></td>
            <td class="axis"><Track pair={p} a={begin(a)} b={begin(b)} length={length} /></td>
          </tr>
        ))}</tbody>
      </table>
      {rows.length > shown.value && <p class="more"><button type="button" onClick={() => (shown.value += shownAtOnce)}>More steps</button></p>}
    </>
  );
}

// Track shows the step of A above that of B.
function Track({ pair, a, b, length }: { pair: Pair; a: number; b: number; length: number }) {
  const bar = (s: Step | undefined, from: number) => {
    if (!s) return <div class="track" />;
    const at = barOf(Date.parse(s.startedAt ?? s.createdAt), s.completedAt ? Date.parse(s.completedAt) : from + length, from, from + length);
    return <div class="track"><i class={`segment ${stateOfStep(s).look}`} style={{ left: `${at.left}%`, width: `${at.width}%` }} /></div>;
  };
  return <div class="tracks" aria-hidden="true">{bar(pair.a, a)}{bar(pair.b, b)}</div>;
}

function Names({ a, b }: { a: Step[]; b: Step[] }) {
  return (
    <table class="list">
      <thead><tr><th>Step</th><th class="num">In A</th><th class="num">In B</th><th class="num">A took in all</th><th class="num">B took in all</th></tr></thead>
      <tbody>{byName(a, b).slice(0, shownAtOnce).map((l) => (
        <tr><td class="strong"><Name of={l.name} /></td><td class="num">{l.a.toLocaleString("en")}</td><td class="num">{l.b.toLocaleString("en")}</td>
          <td class="num">{formatDuration(l.timeA)}</td><td class="num">{formatDuration(l.timeB)}<Difference a={l.timeA} b={l.timeB} /></td></tr>
      ))}</tbody>
    </table>
  );
}

// readPayload returns the input of a run, or what it ended with. It is read as text, so that no number is rounded.
async function readPayload(run: Run, type: "run_created" | "run_ended", signal: AbortSignal) {
  const path = { id: run.id };
  const types = type === "run_created" ? ["run_created" as const] : ["run_completed" as const, "run_failed" as const];
  const text = await callText(project.value, "GET /v1/runs/{id}/events", { path, query: { type: types, limit: 1, payloads: true }, signal });
  const events = member(parseJson(text), "data");
  const event = events?.kind === "array" ? events.items[0] : undefined;
  return { value: member(event, "payload"), none: !event || member(event, "encoding")?.kind === "string" && (member(event, "encoding") as { text: string }).text === '"none"' };
}

function Payloads({ a, b }: { a: Run; b: Run }) {
  return (
    <div class="data">
      <section><h3>Input</h3><Payload a={a} b={b} type="run_created" /></section>
      <section><h3>Output or error</h3><Payload a={a} b={b} type="run_ended" /></section>
    </div>
  );
}

function Payload({ a, b, type }: { a: Run; b: Run; type: "run_created" | "run_ended" }) {
  const read = useResource((signal) => Promise.all([readPayload(a, type, signal), readPayload(b, type, signal)]), [a.id, b.id]);
  if (read.problem.value) return <Trouble problem={read.problem.value} retry={read.refresh} />;
  if (!read.data.value) return <Loading what="both" />;
  const [left, right] = read.data.value;
  if (left.none && right.none) return <p class="quiet">Neither run has one.</p>;
  if (!left.value || !right.value) {
    const lacking = left.none ? "A has none." : right.none ? "B has none." : "They are not JSON, or larger than a list shows: see the runs.";
    return <p class="quiet">{lacking}</p>;
  }
  const rows = diffJson(left.value, right.value);
  if (rows.length === 0) return <p class="quiet">They are equal.</p>;
  return (
    <table class="diff mono">
      <thead><tr><th>Where</th><th>A</th><th>B</th></tr></thead>
      <tbody>{rows.slice(0, mostDifferences).map((r) => <DiffLine row={r} />)}</tbody>
      {rows.length > mostDifferences && <tfoot><tr><td colSpan={3}>{rows.length - mostDifferences} more lines differ.</td></tr></tfoot>}
    </table>
  );
}

const shownText = 300;

function DiffLine({ row: r }: { row: DiffRow }) {
  const value = (text: string | undefined, other: string) => {
    if (text === undefined) return <span class="quiet">{r.kind === "parent" ? "" : other}</span>;
    const shown = readable(text);
    return shown.length > shownText ? shown.slice(0, shownText) + " …" : shown;
  };
  return (
    <tr class={r.kind}>
      <th scope="row" style={{ paddingLeft: `${8 + r.level * 14}px` }}>{r.label || "the whole"}</th>
      <td>{value(r.a, "only in B")}</td><td>{value(r.b, "only in A")}</td>
    </tr>
  );
}
