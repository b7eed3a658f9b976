// What is selected in the timeline, beside it.
import type { Run, TimelineName, TimelinePart } from "../api.gen";
import { addressOf, server } from "../api";
import { tick } from "../clock";
import { formatDuration } from "../lib/duration";
import { startOf, stateOfName, stateOfPart, type Item } from "../lib/lanes";
import { isSdkId, titleOf, titleOfId, titleOfPart } from "../lib/names";
import { curl, quote } from "../lib/shell";
import { href, project } from "../location";
import { Also, Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Payload } from "../parts/payload";
import { Age, Clock, Exact } from "../parts/time";

export function TimelinePanel({ run, of, item, close }: { run: Run; of: string; item: Item; close: () => void }) {
  const title = item.kind === "name" ? titleOf(item.sum.name) : item.kind === "note" ? "" : titleOfPart(item.part);
  return (
    <aside class="panel" aria-label={title}>
      <header><h2>{title}</h2><button type="button" class="icon" aria-label="Close" onClick={close}>×</button></header>
      {item.kind === "name" ? <NameFacts run={run} sum={item.sum} /> : item.kind !== "note" && <PartFacts run={of} part={item.part} />}
    </aside>
  );
}

function NameFacts({ run, sum: s }: { run: Run; sum: TimelineName }) {
  return <>
    <dl class="facts">
      <div><dt>steps</dt><dd>{s.count.toLocaleString("en")}</dd></div>
      <div><dt>status</dt><dd><Status {...stateOfName(s)} /></dd></div>
      <div><dt>completed</dt><dd>{s.completed.toLocaleString("en")}</dd></div>
      <div><dt>failed</dt><dd>{s.failed}</dd></div>
      <div><dt>open</dt><dd>{s.pending + s.running}</dd></div>
      <div><dt>tried again</dt><dd>{s.retried}</dd></div>
      {s.p50Ms !== undefined && <div><dt>median</dt><dd>{formatDuration(s.p50Ms)}</dd></div>}
      {s.slowest && <div><dt>slowest</dt><dd>{formatDuration(s.maxMs!)}, <a href={href(["runs", run.id, "log"], { of: s.slowest })} title={s.slowest}>{titleOfId(s.slowest)}</a></dd></div>}
      <div><dt>first</dt><dd><Exact at={s.firstAt} /></dd></div>
    </dl>
    <Also what={`Steps called ${titleOf(s.name)}`} cli={`stepwell runs timeline ${run.id} --name ${quote(s.name)}`}
      curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/timeline", { path: { id: run.id }, query: { name: s.name } }))} />
  </>;
}

// timesOf returns how long a step was queued, ran, and waited between its attempts.
function timesOf(p: TimelinePart, now: number): Array<[string, number]> {
  const attempts = p.attempts ?? [];
  if (p.kind !== "step" || attempts.length === 0 || p.cut) return [];
  const end = p.endedAt ? Date.parse(p.endedAt) : now;
  const ran = attempts.reduce((sum, a) => sum + (a.endedAt ? Date.parse(a.endedAt) : end) - Date.parse(a.startedAt), 0);
  const queued = Math.max(0, Date.parse(attempts[0]!.startedAt) - Date.parse(p.createdAt));
  return [["queued", queued], ["ran", ran], ["between attempts", Math.max(0, end - startOf(p) - queued - ran)]];
}

function PartFacts({ run, part: p }: { run: string; part: TimelinePart }) {
  const log = (seq: number) => `${href(["runs", run, "log"])}#e${seq}`;
  const result = p.attempts?.findLast((a) => a.endSeq !== undefined)?.endSeq;
  const payload = (title: string, seq: number) => <><h3>{title}</h3><Payload key={seq} project={project.value} run={run} seq={seq} lines={12} /></>;
  return <>
    <dl class="facts">
      <div><dt>{p.childId ? "child run" : p.kind}</dt><dd class="mono">{p.id}{isSdkId(p.id) && <Copy text={p.id} what="the ID" />}</dd></div>
      {p.name !== undefined && titleOf(p.name) !== p.name && <div><dt>name</dt><dd class="mono">{p.name}</dd></div>}
      <div><dt>status</dt><dd><Status {...stateOfPart(p)} /></dd></div>
      {p.at && <div><dt>code</dt><dd class="mono">{p.at}</dd></div>}
      {p.undo && <div><dt>undone by</dt><dd class="mono">{p.undo}</dd></div>}
      <div><dt>created</dt><dd><Exact at={p.createdAt} /></dd></div>
      {timesOf(p, tick.value).filter(([, ms]) => ms > 0).map(([what, ms]) => <div><dt>{what}</dt><dd>{formatDuration(ms)}</dd></div>)}
      {p.resumeAt && <div><dt>until</dt><dd><Exact at={p.resumeAt} /> <span class="quiet"><Age at={p.resumeAt} /></span></dd></div>}
      {p.endedAt && <div><dt>ended</dt><dd><Exact at={p.endedAt} /></dd></div>}
    </dl>
    {p.attempts && <><h3>Attempts</h3><ol class="tl-attempts" start={1}>{p.attempts.map((a) => (
      <li><Clock at={a.startedAt} />, {formatDuration((a.endedAt ? Date.parse(a.endedAt) : tick.value) - Date.parse(a.startedAt))}:{" "}
        {a.outcome ? <a href={log(a.endSeq ?? a.seq)}>{a.outcome}{a.code && `, ${a.code}`}</a> : "running"}
        {a.retryAfter && <span class="quiet">, again <Age at={a.retryAfter} /></span>}</li>
    ))}</ol>{p.cut && <p class="quiet">Earlier attempts are in the log.</p>}</>}
    {p.received && <><h3>Received</h3><ol class="tl-attempts">{p.received.map((r) => <li><Clock at={r.at} />: <a href={log(r.seq)}>payload</a></li>)}</ol>
      <Payload key={p.received.length} project={project.value} run={run} seq={p.received.at(-1)!.seq} lines={12} /></>}
    {p.kind !== "wait" && p.seq > 0 && payload(p.kind === "step" ? "Input" : "Metadata", p.seq)}
    {result !== undefined && payload(p.status === "completed" ? "Output" : "Last error", result)}
    <p class="tl-links"><a class="button" href={href(["runs", run, "log"], { of: p.id })}>Events</a>
      {p.childId && <a class="button" href={href(["runs", p.childId])}>Open the run</a>}</p>
    {p.kind === "step" && <Also what={`Step ${titleOfPart(p)}`} cli={`stepwell steps show ${run} ${quote(p.id)}`}
      curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/steps/{stepId}", { path: { id: run, stepId: p.id } }))} />}
  </>;
}
