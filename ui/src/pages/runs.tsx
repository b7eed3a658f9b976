// The list of runs: filters in the address, newest first, kept as the live connection tells.
import { useSignal } from "@preact/signals";
import { addressOf, server } from "../api";
import { clock, tick } from "../clock";
import { useKeys } from "../shortcuts";
import { useRuns } from "../list";
import { go, href, search } from "../location";
import type { Run } from "../api.gen";
import { formatDuration } from "../lib/duration";
import { commandOf, formatFilter, parseFilter, queryOf, withTerm, type Filter } from "../lib/filter";
import { shortId } from "../lib/path";
import { curl } from "../lib/shell";
import { durationOf, stateOfRun } from "../lib/status";
import { Chips } from "../parts/chips";
import { Commands } from "../parts/copy";
import { Status } from "../parts/icon";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age } from "../parts/time";

export function Runs() {
  const text = search.value.get("q") ?? "";
  const { filter, problem } = parseFilter(text);
  const focused = useSignal(-1);
  const list = useRuns(filter, text);
  const { first, readOlder } = list;
  const rows = list.rows ?? [];
  const change = (f: Filter) => go(href(["runs"], { q: formatFilter(f) }));
  const open = (id: string) => go(href(["runs", id]));
  const move = (by: number) => {
    // New rows move those below them, and with them the focus.
    const at = /^run-(\d+)$/.exec(document.activeElement?.id ?? "")?.[1];
    focused.value = Math.max(0, Math.min(rows.length - 1, (at ? Number(at) : focused.value) + by));
    document.getElementById(`run-${focused.value}`)?.focus();
  };
  useKeys({ j: () => move(1), k: () => move(-1) });
  const empty = list.rows !== null && rows.length === 0 && !list.more;
  return (
    <main class="page">
      <header class="page-head"><h1>Runs</h1>
        <span class="quiet count">{rows.length > 0 && `${rows.length}${list.more ? "+" : ""} shown, newest first`}</span>
        <Commands cli={commandOf(filter)} curl={curl(server, "GET", addressOf("GET /v1/runs", { query: queryOf(filter, clock.now()) }))} />
      </header>
      <Chips filter={filter} change={change} open={open} />
      {problem && <p class="problem" role="alert">{problem}</p>}
      {first.problem.value && <Trouble problem={first.problem.value} retry={first.refresh} />}
      {list.rows === null && !first.problem.value && <Loading what="runs" />}
      {list.waiting > 0 && <p class="new-rows" role="status"><button type="button" onClick={list.showNew}>
        {list.waiting} new {list.waiting === 1 ? "run matches" : "runs match"}: show</button></p>}
      {rows.length > 0 && <Table rows={rows} filter={filter} change={change} focus={(i) => (focused.value = i)} />}
      {empty && <NoRuns filter={filter} change={change} />}
      {list.more && <p class="more"><button type="button" onClick={readOlder} disabled={list.reading}>
        {list.reading ? "Reading …" : "Older runs"}</button></p>}
    </main>
  );
}

interface TableProps {
  rows: Run[];
  filter: Filter;
  change: (f: Filter) => void;
  focus: (i: number) => void;
}

function Table({ rows, filter, change, focus }: TableProps) {
  return (
    <table class="list runs">
      <thead><tr><th>Status</th><th>Workflow</th><th>Run</th><th>Key and attributes</th>
        <th class="num">Created</th><th class="num">Took</th><th class="num">Events</th><th>Now</th></tr></thead>
      <tbody>{rows.map((r, i) => (
        <tr key={r.id} onClick={(e) => {
          if (!(e.target as Element).closest("a, button")) go(href(["runs", r.id]));
        }}>
          <td><Status {...stateOfRun(r, tick.value)} /></td>
          <td class="strong">{r.workflow}</td>
          <td><a href={href(["runs", r.id])} id={`run-${i}`} class="mono" title={r.id} onFocus={() => focus(i)}>{shortId(r.id)}</a></td>
          <td class={r.key || Object.keys(r.attributes).length > 0 ? "tags" : "tags none"}><Tags run={r} filter={filter} change={change} /></td>
          <td class="num"><Age at={r.createdAt} /></td>
          <td class="num">{r.startedAt || r.completedAt ? formatDuration(durationOf(r, tick.value)) : "–"}</td>
          <td class="num">{r.lastSeq.toLocaleString("en")}</td>
          <td class="now"><Now run={r} /></td>
        </tr>
      ))}</tbody>
    </table>
  );
}

function Tags({ run, filter, change }: { run: Run; filter: Filter; change: (f: Filter) => void }) {
  const attributes = Object.entries(run.attributes);
  return (
    <>
      {run.key && <button type="button" class="tag" title="Only runs with this key"
        onClick={() => change(withTerm(filter, { field: "key", value: run.key! }))}>{run.key}</button>}
      {attributes.slice(0, 3).map(([name, value]) => (
        <button type="button" class="tag" title="Only runs with this attribute"
          onClick={() => change(withTerm(filter, { attribute: name, value }))}><span class="quiet">{name}=</span>{value}</button>
      ))}
      {attributes.length > 3 && <span class="quiet">+{attributes.length - 3}</span>}
      {!run.key && attributes.length === 0 && <span class="quiet">–</span>}
    </>
  );
}

function Now({ run }: { run: Run }) {
  if (run.held) return <><span class="mono">{run.held.code}</span> <span class="quiet">{run.held.attempts} calls failed</span></>;
  if (run.error) return <span class="mono">{run.error.code || "no code"}</span>;
  if (run.startAt && Date.parse(run.startAt) > tick.value) return <span class="quiet">starts <Age at={run.startAt} /></span>;
  return <span class="quiet">{run.driver === "client" ? "Workflow SDK" : run.deployment}</span>;
}

function NoRuns({ filter, change }: { filter: Filter; change: (f: Filter) => void }) {
  if (filter.length > 0) {
    return (
      <Empty title="No run matches">
        <p>{formatFilter(filter)}</p>
        <button type="button" onClick={() => change([])}>Show all runs</button>
      </Empty>
    );
  }
  const put = curl(server, "PUT", "/v1/deployments/my-function", JSON.stringify({ url: "http://127.0.0.1:3000" }));
  const start = curl(server, "POST", "/v1/runs", JSON.stringify({ workflow: "order", deployment: "my-function" }));
  return (
    <Empty title="There are no runs yet">
      <ol class="first-steps">
        <li>Point something at this server: any HTTP endpoint.
          <Commands open cli="stepwell deployments add my-function http://127.0.0.1:3000" curl={put} /></li>
        <li>Start a run.<Commands open cli="stepwell runs start order --deployment my-function" curl={start} /></li>
        <li>It appears here by itself.</li>
      </ol>
    </Empty>
  );
}
