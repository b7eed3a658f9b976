// The steps of a run in the order of their creation, with a bar for each on the axis of the run.
import type { Run, Step } from "../api.gen";
import { call } from "../api";
import { tick } from "../clock";
import { barOf } from "../lib/bars";
import { formatDuration } from "../lib/duration";
import { isSdkId, titleOf } from "../lib/names";
import { hasEnded, stateOfStep } from "../lib/status";
import { useList } from "../list";
import { href, project } from "../location";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Age } from "../parts/time";

const pageSize = 200;

export function Steps({ run }: { run: Run }) {
  const list = useList<Step>((cursor, signal) =>
    call(project.value, "GET /v1/runs/{id}/steps", { path: { id: run.id }, query: { limit: pageSize, cursor }, signal }),
  [run.id], (s) => s.id, { on: hasEnded(run) ? [] : ["queue"], version: run.lastSeq });
  const from = Date.parse(run.startedAt ?? run.createdAt);
  const to = run.completedAt ? Date.parse(run.completedAt) : tick.value;
  return (
    <Rows list={list} what="steps" empty={<Empty title="This run has no steps"><p>A step appears here when the run’s function creates it.</p></Empty>}>
      <table class="list steps">
        <thead><tr><th>Status</th><th>Step</th><th class="num">Attempts</th><th class="num">Queued</th><th class="num">Took</th>
          <th class="axis">{formatDuration(to - from)} from the start of the run</th></tr></thead>
        <tbody>{list.rows.map((s) => <Row key={s.id} run={run} step={s} from={from} to={to} />)}</tbody>
      </table>
    </Rows>
  );
}

function Row({ run, step: s, from, to }: { run: Run; step: Step; from: number; to: number }) {
  const state = stateOfStep(s);
  const created = Date.parse(s.createdAt);
  const started = s.startedAt ? Date.parse(s.startedAt) : NaN;
  const end = s.completedAt ? Date.parse(s.completedAt) : to;
  const queued = barOf(created, Number.isNaN(started) ? end : started, from, to);
  const ran = Number.isNaN(started) ? null : barOf(started, end, from, to);
  return (
    <tr>
      <td><Status {...state} /></td>
      <td><a href={href(["runs", run.id, "log"], { of: s.id })} class="strong" title={isSdkId(s.id) ? `${s.name} (${s.id}): its events` : "Its events"}>{titleOf(s.name)}</a>
        {s.id !== s.name && !isSdkId(s.id) && <span class="quiet mono"> {s.id}</span>}</td>
      <td class="num">{s.attempt}{s.retryAfter && state.look === "retrying" && <span class="quiet"> next <Age at={s.retryAfter} /></span>}</td>
      <td class="num">{Number.isNaN(started) ? "–" : formatDuration(started - created)}</td>
      <td class="num">{Number.isNaN(started) ? "–" : formatDuration(end - started)}</td>
      <td class="axis"><div class="track">
        <i class="segment queued" style={{ left: `${queued.left}%`, width: `${queued.width}%` }} />
        {ran && <i class={`segment ${state.look}`} style={{ left: `${ran.left}%`, width: `${ran.width}%` }} />}
      </div></td>
    </tr>
  );
}
