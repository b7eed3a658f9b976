// Failures: failed runs in groups.
import { useSignal } from "@preact/signals";
import type { Api } from "../api.gen";
import { addressOf, call, server } from "../api";
import { formatDuration } from "../lib/duration";
import { formatFilter, type Filter } from "../lib/filter";
import { curl } from "../lib/shell";
import { beganAfter, spanOf, type Release, type Span } from "../lib/trend";
import { href, project, search } from "../location";
import { Commands } from "../parts/copy";
import { Glyph } from "../parts/icon";
import { lazyPart } from "../parts/lazy";
import { Name } from "../parts/name";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Spans } from "../parts/spans";
import { Spark } from "../parts/spark";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { may, needs } from "../session";
import type { BulkProps } from "./bulk";

type Group = Api["GET /v1/failures"]["answer"]["data"][number];

const Bulk = lazyPart<BulkProps>("the form", async () => (await import("./tools")).Bulk);

const shownAtOnce = 50;

export function Failures() {
  const span = spanOf(search.value.get("in"));
  return (
    <main class="page">
      <header class="page-head"><h1>Failures</h1><Spans to={["failures"]} />
        <Commands cli={`stepwell failures --window ${windowOf(span)}`} curl={curl(server, "GET", addressOf("GET /v1/failures", { query: { window: windowOf(span) } }))} /></header>
      <FailureGroups span={span} />
    </main>
  );
}

function windowOf(span: Span): string {
  return `${span.ms / 3_600_000}h`;
}

// FailureGroups lists the groups of a span of time, of all workflows or of one.
export function FailureGroups({ span, workflow }: { span: Span; workflow?: string }) {
  const read = useResource(async (signal) => {
    const [failures, releases] = await Promise.all([
      call(project.value, "GET /v1/failures", { query: { window: windowOf(span) }, signal }),
      call(project.value, "GET /v1/deployments", { signal }),
    ]);
    return { ...failures, releases: releases.data };
  }, [project.value, span.name], { on: ["stats"] });
  const rerun = useSignal<Group | null>(null);
  const all = useSignal(false);
  const data = read.data.value;
  const groups = data?.data.filter((g) => !workflow || g.workflow === workflow) ?? [];
  const shown = all.value ? groups : groups.slice(0, shownAtOnce);
  return (
    <>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!data && !read.problem.value && <Loading what="failures" />}
      {data?.more && <p class="warning">The last 1,000 failed runs are grouped: all since <Clock at={data.since} />. There were more before.</p>}
      {data && groups.length === 0 && (workflow
        ? <p class="quiet">No run has failed in {span.name}.</p>
        : <Empty title={`No run has failed in ${span.name}`} />)}
      {groups.length > 0 && <table class="list groups">
        <thead><tr><th>Failed with</th><th class="num">Runs</th><th class="num">First</th><th class="num">Last</th><th>Trend</th><th>What helps</th></tr></thead>
        <tbody>{shown.map((g) => <Line key={`${g.workflow} ${g.step} ${g.code} ${g.shape}`} group={g} releases={data!.releases} since={data!.since}
          rerun={() => (rerun.value = g)} />)}</tbody>
      </table>}
      {shown.length < groups.length && <p class="more"><button type="button" onClick={() => (all.value = true)}>All {groups.length} groups</button></p>}
      {rerun.value && <Bulk action="rerun" target={{ filter: filterOf(rerun.value) }} note="The step and the message do not count."
        done={read.refresh} close={() => (rerun.value = null)} />}
    </>
  );
}

// filterOf returns the filter of the runs that failed like a group. Messages and steps cannot be filtered by.
function filterOf(g: Group): Filter {
  const filter: Filter = [{ field: "workflow", value: g.workflow }, { field: "status", value: "failed" }];
  if (g.code) filter.push({ field: "error", value: g.code });
  return [...filter, { field: "created", value: g.createdFrom }];
}

interface LineProps {
  group: Group;
  releases: Release[];
  since: string;
  rerun: () => void;
}

function Line({ group: g, releases, since, rerun }: LineProps) {
  const after = beganAfter(g.firstAt, g.firstDeployment, releases, since);
  const count = g.count.toLocaleString("en");
  return (
    <tr>
      <td class="what">
        <div><Glyph look="failed" /> <a class="strong" href={href(["workflows", g.workflow])}><Name of={g.workflow} /></a>{g.step && <> › <Name of={g.step} /></>} <span class="mono">{g.code || "no code"}</span></div>
        {g.shape && <div class="quiet" title={g.message}>{g.shape}</div>}
        {after !== null && <div class="began">Began {formatDuration(after)} after deployment <strong>{g.firstDeployment}</strong> was changed.</div>}
      </td>
      <td class="num" data-label="runs">{count}</td>
      <td class="num" data-label="first"><Age at={g.firstAt} /></td>
      <td class="num" data-label="last"><Age at={g.lastAt} /></td>
      <td class="trend"><Spark bars={g.trend.map((n) => ({ all: n, failed: n }))} label={`${count} failed runs over time`} /></td>
      <td class="helps">
        <a class="button" href={href(["runs"], { q: formatFilter(filterOf(g)) })}>These runs</a>
        <a class="button" href={href(["runs", g.runId])}>Last run</a>
        <button type="button" disabled={!may("write")} title={may("write") ? "" : needs("write")} onClick={rerun}>Rerun all …</button>
      </td>
    </tr>
  );
}
