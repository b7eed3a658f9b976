// Overview: what needs attention, what is open, and what happened lately.
import { useSignal } from "@preact/signals";
import type { Api, Run } from "../api.gen";
import { addressOf, call, server } from "../api";
import { attention } from "../attention";
import { clock, tick } from "../clock";
import { say } from "../lib/attention";
import { formatAge, formatDuration } from "../lib/duration";
import { shortId } from "../lib/path";
import { ranges, windowOf } from "../lib/series";
import { curl, quote } from "../lib/shell";
import { durationOf, stateOfRun } from "../lib/status";
import { go, href, project, search } from "../location";
import { Commands } from "../parts/copy";
import { Glyph, Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Loading, Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { Begin } from "./begin";
import { Charts } from "./charts";


export function Overview() {
  const has = useSignal(false);
  const begun = useResource(async (signal) => {
    const runs = await call(project.value, "GET /v1/runs", { query: { limit: 1 }, signal });
    has.value = runs.data.length > 0;
    return runs;
  }, [project.value], { on: has.value ? [] : ["runs"] });
  const runs = begun.data.value;
  if (begun.problem.value && !runs) return <main class="page"><Trouble problem={begun.problem.value} retry={begun.refresh} /></main>;
  if (!runs) return <main class="page"><Loading what="the overview" /></main>;
  return runs.data.length === 0 ? <Begin /> : <Numbers />;
}

// Numbers is the overview of a project that has runs.
function Numbers() {
  const range = ranges.find((r) => r.name === search.value.get("in")) ?? ranges[0]!;
  const workflow = search.value.get("workflow") ?? "";
  const only = workflow ? { workflow } : {};
  const scope = [project.value, range.name, workflow];
  const stats = useResource(async (signal) => {
    const w = windowOf(range, clock.now());
    const query = { from: iso(w.start), to: iso(w.start + range.ms), step: range.step };
    const [all, apart] = await Promise.all([
      call(project.value, "GET /v1/stats/runs", { query: { ...query, ...only }, signal }),
      call(project.value, "GET /v1/stats/runs", { query: { ...query, by: "workflow" }, signal }),
    ]);
    return { w, all: all.data[0]?.points ?? [], apart: apart.data, completeTo: all.completeTo };
  }, scope, { on: ["stats"] });
  const limits = useResource((signal) => call(project.value, "GET /v1/limits", { query: { limit: 100 }, signal }), [project.value]);
  const data = stats.data.value;
  const address = addressOf("GET /v1/stats/runs", { query: { from: iso(clock.now() - range.ms), step: range.step, ...only } });
  const change = (to: Record<string, string>) => go(href(["overview"], { in: range.name, workflow, ...to }), "replace");
  const names = [...new Set([workflow, ...(data?.apart.map((s) => s.name) ?? [])])].filter(Boolean).sort();
  return (
    <main class="page overview">
      <header class="page-head"><h1>Overview</h1>
        <div class="segmented" role="group" aria-label="Time">
          {ranges.map((r) => <button type="button" aria-pressed={r === range} onClick={() => change({ in: r.name })}>{r.name}</button>)}
        </div>
        <select aria-label="Workflow" value={workflow} onChange={(e) => change({ workflow: e.currentTarget.value })}>
          <option value="">all workflows</option>{names.map((n) => <option value={n}>{n}</option>)}
        </select>
        {data && <span class="quiet">{Date.parse(data.completeTo) > 0 ? <>complete up to <Clock at={data.completeTo} /></> : "nothing is counted yet"}</span>}
        <Commands cli={`stepwell stats runs --from ${range.ms / 3_600_000}h --step ${range.step}${workflow ? ` --workflow ${quote(workflow)}` : ""}`}
          curl={curl(server, "GET", address)} />
      </header>
      <Wants />
      <Gauges />
      {stats.problem.value && <Trouble problem={stats.problem.value} retry={stats.refresh} />}
      {data ? <Charts {...data} range={range} workflow={workflow} limits={limits.data.value?.data ?? []} /> : !stats.problem.value && <Loading what="the statistics" />}
      <div class="lists">
        <Runs title="Slowest open runs" query={{ status: ["running"], order: "asc", include: "reason", ...only }} empty="No run is open." now={(r) => formatDuration(durationOf(r, tick.value))} />
        <Runs title="Last failures" query={{ status: ["failed"], ...only }} empty="No run has failed." now={(r) => r.error?.code || "no code"} />
      </div>
    </main>
  );
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}

// Wants lists what needs attention, or says that nothing does.
function Wants() {
  const items = attention.value?.data;
  if (!items) return null;
  if (items.length === 0) return <p class="well"><Glyph look="completed" />All is well: nothing needs attention.</p>;
  return (
    <section class="wants" aria-labelledby="wants">
      <h2 id="wants">Needs attention</h2>
      <ul>{items.map((i) => {
        const { text, to, query } = say(i);
        return (
          <li><Glyph look={i.kind === "key_expiring" || i.kind === "two_signing_keys" ? "waiting" : "failed"} />
            <span><strong>{text}</strong>{i.since && <span class="quiet"> since <Age at={i.since} /></span>}
              {i.until && <span class="quiet"> the first one <Age at={i.until} /></span>}</span>
            <a href={href(to, query)} aria-label={`Look: ${text}`}>Look</a></li>
        );
      })}</ul>
    </section>
  );
}

function Gauges() {
  const read = useResource((signal) => call(project.value, "GET /v1/stats/now", { signal }), [project.value], { on: ["queue", "runs"] });
  const g = read.data.value;
  if (read.problem.value) return <Trouble problem={read.problem.value} retry={read.refresh} />;
  if (!g) return <Loading what="the queue" />;
  const n = (v: number) => v.toLocaleString("en") + (g.capped ? "+" : "");
  return (
    <dl class="gauges" title={g.capped ? "A count stopped at 10,000: there may be more of each." : undefined}>
      <Gauge name="pending" value={n(g.runs.pending)} />
      <Gauge name="running" value={n(g.runs.running)} />
      <Gauge name="being delivered" value={n(g.messages.leased)} />
      <Gauge name={g.messages.oldestDue ? `due, the oldest ${formatAge(tick.value - Date.parse(g.messages.oldestDue))}` : "due"} value={n(g.messages.due)} />
      <Gauge name="delayed" value={n(g.messages.delayed)} />
      <Gauge name="retrying" value={n(g.messages.retrying)} />
      <Gauge name="parked" value={n(g.messages.parked)} bad={g.messages.parked > 0} />
    </dl>
  );
}

function Gauge({ name, value, bad }: { name: string; value: string; bad?: boolean }) {
  return <div><dt>{name}</dt><dd>{bad && <Glyph look="failed" />}{value}</dd></div>;
}

interface RunsProps {
  title: string;
  query: Api["GET /v1/runs"]["query"];
  empty: string;
  now: (r: Run) => string;
}

// Runs lists the first five runs of a query.
function Runs({ title, query, empty, now }: RunsProps) {
  const read = useResource((signal) => call(project.value, "GET /v1/runs", { query: { ...query, limit: 5 }, signal }),
    [project.value, JSON.stringify(query)], { on: ["runs"] });
  const runs = read.data.value?.data;
  return (
    <section>
      <h2>{title}</h2>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {runs?.length === 0 && <p class="quiet">{empty}</p>}
      {runs && runs.length > 0 && (
        <table class="list"><thead class="hidden"><tr><th>Status</th><th>Workflow</th><th>Run</th><th>Created</th><th>Now</th></tr></thead>
          <tbody>{runs.map((r) => (
            <tr key={r.id}><td><Status {...stateOfRun(r, tick.value)} /></td><td class="strong"><Name of={r.workflow} /></td>
              <td><a class="mono" href={href(["runs", r.id])} title={r.id}>{shortId(r.id)}</a></td>
              <td class="num"><Age at={r.createdAt} /></td><td class="num">{now(r)}</td></tr>
          ))}</tbody></table>
      )}
    </section>
  );
}
