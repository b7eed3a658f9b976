// Workflows: each workflow with its statistics, and one of them.
import type { ComponentChild } from "preact";
import type { Api, Pause, RunStatus } from "../api.gen";
import { addressOf, call, server } from "../api";
import { clock } from "../clock";
import { formatDuration } from "../lib/duration";
import { formatTerm } from "../lib/filter";
import { curl, quote } from "../lib/shell";
import { barsOf, endedOf, formatShare, isRising, spanOf, startOf, stepLines, type Span } from "../lib/trend";
import { href, page, project, search } from "../location";
import { Commands } from "../parts/copy";
import { FailureGroups } from "./failures";
import { PausedSince, PauseButton, usePauses } from "./pauses";
import { Name } from "../parts/name";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Spans } from "../parts/spans";
import { Spark } from "../parts/spark";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { may, needs } from "../session";

// A page of its own, so that neither page loads the other.

type Series = Api["GET /v1/stats/runs"]["answer"]["data"][number];
type Workflow = Api["GET /v1/workflows"]["answer"]["data"][number];


export function Workflows() {
  const name = page.value.segments[1];
  return name === undefined ? <All /> : <One key={name} name={name} />;
}

function All() {
  const span = spanOf(search.value.get("in"));
  const read = useResource(async (signal) => {
    const from = startOf(span, clock.now());
    const [list, stats] = await Promise.all([
      call(project.value, "GET /v1/workflows", { query: { limit: 200 }, signal }),
      call(project.value, "GET /v1/stats/runs", { query: { by: "workflow", step: span.step, from: new Date(from).toISOString() }, signal }),
    ]);
    return { from, list, series: new Map(stats.data.map((s) => [s.name, s])) };
  }, [project.value, span.name], { on: ["stats"] });
  const pauses = usePauses();
  const data = read.data.value;
  const rows = data?.list.data ?? [];
  return (
    <main class="page">
      <header class="page-head"><h1>Workflows</h1><Spans to={["workflows"]} />
        <Commands cli="stepwell workflows" curl={curl(server, "GET", addressOf("GET /v1/workflows", {}))} /></header>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!data && !read.problem.value && <Loading what="workflows" />}
      {data && rows.length === 0 && <Empty title="No workflow has runs"><p>A workflow appears here when its first run is started.</p></Empty>}
      {rows.length > 0 && <table class="list numbers">
        <thead><tr><th>Workflow</th><th>Deployment</th><th class="num">Runs in {span.name}</th><th class="num">Failed</th>
          <th class="num">p50</th><th class="num">p95</th><th class="num">Open</th><th>Trend</th></tr></thead>
        <tbody>{rows.map((w) => <Row key={w.name} workflow={w} pause={pauses.of("workflow", w.name)} series={data!.series.get(w.name)} span={span} from={data!.from} />)}</tbody>
      </table>}
      {data?.list.cursor && <p class="quiet more">The first 200 by name are shown.</p>}
    </main>
  );
}

function Row({ workflow: w, pause, series, span, from }: { workflow: Workflow; pause: Pause | null | undefined; series: Series | undefined; span: Span; from: number }) {
  return (
    <tr>
      <td><a class="strong" href={href(["workflows", w.name], { in: span.name })}><Name of={w.name} /></a>{pause && <div class="quiet small"><PausedSince of={pause} /></div>}</td>
      <td class="quiet">{w.deployment}</td>
      <Numbers series={series} span={span} from={from} open={<td class="num" data-label="open">
        <a href={href(["runs"], { q: formatTerm({ field: "workflow", value: w.name }) })}>{w.open.toLocaleString("en")}{w.moreOpen && "+"}</a></td>} />
    </tr>
  );
}

// Numbers are the cells of a series: runs, failures, percentiles, and the trend.
function Numbers({ series, span, from, open }: { series: Series | undefined; span: Span; from: number; open?: ComponentChild }) {
  const total = series?.total;
  const bars = barsOf(series?.points ?? [], span, from);
  const created = total?.created ?? 0;
  const failed = total?.failed ?? 0;
  return (
    <>
      <td class="num" data-label="runs">{created.toLocaleString("en")}</td>
      <td class="num" data-label="failed">{failed.toLocaleString("en")}
        {total && failed > 0 && <span class="quiet"> ({formatShare(failed, endedOf(total))})</span>}
        {isRising(bars) && <strong class="rising" title="Failures are twice as frequent as before"> ▲<span class="hidden"> rising</span></strong>}</td>
      <td class="num" data-label="p50">{formatDuration(total?.tookMs?.p50 ?? NaN)}</td>
      <td class="num" data-label="p95">{formatDuration(total?.tookMs?.p95 ?? NaN)}</td>
      {open}
      <td class="trend"><Spark bars={bars} label={`${created} runs in ${span.name}, ${failed} failed`} /></td>
    </>
  );
}

function One({ name }: { name: string }) {
  const span = spanOf(search.value.get("in"));
  const q = formatTerm({ field: "workflow", value: name });
  const read = useResource(async (signal) => {
    const from = startOf(span, clock.now());
    const query = { workflow: name, from: new Date(from).toISOString() };
    const [all, deployments, steps, order, releases] = await Promise.all([
      call(project.value, "GET /v1/stats/runs", { query: { ...query, step: span.step }, signal }),
      call(project.value, "GET /v1/stats/runs", { query: { ...query, step: span.step, by: "deployment" }, signal }),
      call(project.value, "GET /v1/stats/steps", { query, signal }),
      readOrder(name, signal),
      call(project.value, "GET /v1/deployments", { signal }),
    ]);
    return { from, all: all.data[0], deployments: deployments.data, lines: stepLines(steps.data, order), releases: releases.data };
  }, [project.value, name, span.name], { on: ["stats"] });
  const data = read.data.value;
  const pauses = usePauses();
  const pause = pauses.of("workflow", name);
  const start = <a class="button" href={href(["runs"], { start: name })}>Start like the last one …</a>;
  return (
    <main class="page">
      <nav class="crumbs" aria-label="Path"><a href={href(["workflows"])}>Workflows</a></nav>
      <header class="page-head"><h1><Name of={name} /></h1><Spans to={["workflows", name]} />
        <a class="button" href={href(["runs"], { q })}>Runs</a>
        {may("invoke") ? start : <button type="button" disabled title={needs("invoke")}>Start like the last one …</button>}
        <PauseButton kind="workflow" name={name} pause={pause} done={pauses.refresh} />
        <Commands cli={`stepwell runs list --workflow ${quote(name)}`} curl={curl(server, "GET", addressOf("GET /v1/stats/runs", { query: { workflow: name, step: span.step, by: "deployment" } }))} /></header>
      {pause && <p class="warning"><PausedSince of={pause} /></p>}
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!data && !read.problem.value && <Loading what="the workflow" />}
      {data && <div class="parts">
        <h2>By deployment</h2>
        <table class="list numbers">
          <thead><tr><th>Deployment</th><th>Changed</th><th class="num">Runs in {span.name}</th><th class="num">Failed</th>
            <th class="num">p50</th><th class="num">p95</th><th>Trend</th></tr></thead>
          <tbody>
            {data.deployments.map((d) => {
              const release = data.releases.find((r) => r.id === d.name);
              return <tr key={d.name}><td class="strong">{d.name}</td><td class="quiet" data-label="changed">{release ? <Age at={release.updatedAt} /> : "–"}</td>
                <Numbers series={d} span={span} from={data.from} /></tr>;
            })}
            <tr><td>All</td><td /><Numbers series={data.all} span={span} from={data.from} /></tr>
          </tbody>
        </table>
        <h2>Steps</h2>
        {data.lines.length === 0 ? <p class="quiet">No step has ended in this time.</p> : <Steps lines={data.lines} runs={data.all?.total.started ?? 0} />}
        <h2>Failures</h2>
        <FailureGroups workflow={name} span={span} />
      </div>}
    </main>
  );
}

// readOrder returns the names of the steps of a recent run, in the order in which they were created.
async function readOrder(workflow: string, signal: AbortSignal): Promise<string[]> {
  const find = (query: { status?: RunStatus[] }) =>
    call(project.value, "GET /v1/runs", { query: { workflow, limit: 1, ...query }, signal });
  const run = (await find({ status: ["completed"] })).data[0] ?? (await find({})).data[0];
  if (!run) return [];
  return (await call(project.value, "GET /v1/runs/{id}/steps", { path: { id: run.id }, query: { limit: 200 }, signal })).data.map((s) => s.name);
}

function Steps({ lines, runs }: { lines: ReturnType<typeof stepLines>; runs: number }) {
  return (
    <table class="list numbers">
      <thead><tr><th>Step</th><th class="num">Per run</th><th class="num">p50</th><th class="num">p95</th>
        <th class="num">Attempts</th><th class="num">Failed</th><th>Share of the steps’ time</th></tr></thead>
      <tbody>{lines.map((s) => (
        <tr key={s.name}>
          <td class="strong"><Name of={s.name} /></td>
          <td class="num" data-label="per run">{runs > 0 ? Number((s.ended / runs).toFixed(1)) : "–"}</td>
          <td class="num" data-label="p50">{formatDuration(s.tookMs?.p50 ?? NaN)}</td>
          <td class="num" data-label="p95">{formatDuration(s.tookMs?.p95 ?? NaN)}</td>
          <td class="num" data-label="attempts">{s.attempts.toFixed(2)}{s.attempts >= 1.2 && <strong title="More than one step in five is tried again"> ▲<span class="hidden"> many</span></strong>}</td>
          <td class="num" data-label="failed">{s.failed.toLocaleString("en")}{s.failed > 0 && <span class="quiet"> ({formatShare(s.failed, s.ended)})</span>}</td>
          <td class="share"><span class="part"><i style={{ width: `${s.share * 100}%` }} /></span>{formatShare(s.share, 1)}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}
