// The charts of the overview: what starts and ends, what fails, how long it takes, and how much of the limits is used. A click
// opens the runs behind a point.
import type { Limit, RunPoint } from "../api.gen";
import { formatFilter, type Filter } from "../lib/filter";
import { titleOf } from "../lib/names";
import { largest, spread, type Range, type Window } from "../lib/series";
import { endedOf } from "../lib/trend";
import { go, href } from "../location";
import { Chart, type Series } from "../parts/chart";
import { Latency } from "../parts/latency";

const mostWorkflows = 8;
const mostLimits = 8;

interface ChartsProps {
  w: Window;
  all: RunPoint[];
  apart: Array<{ name: string; points: RunPoint[]; total: RunPoint }>;
  completeTo: string;
  range: Range;
  workflow: string;
  limits: Limit[];
}

const iso = (ms: number) => new Date(ms).toISOString();

export function Charts({ w, all, apart, completeTo, range, workflow, limits }: ChartsProps) {
  const counts = (name: string, value: (p: RunPoint) => number): Series => ({ name, look: name, values: spread(w, all, value, 0) });
  const took = (of: "tookMs" | "delayMs", names: Array<"p50" | "p95" | "p99">): Series[] =>
    names.map((name, i) => ({ name, look: `s${i}`, values: spread(w, all, (p) => p[of]?.[name] ?? null, null) }));
  const shown = apart.filter((s) => !workflow || s.name === workflow);
  const byWorkflow = (value: (p: RunPoint) => number): Series[] =>
    largest(shown.map((s) => ({ name: titleOf(s.name), values: spread(w, s.points, value, 0) })), 5).map((s, i) => ({ ...s, look: `s${i}` }));
  const [started, failed] = [byWorkflow((p) => p.created), byWorkflow((p) => p.failed)];
  const latency = shown.flatMap(({ name, total }) => (total.tookMs ? [{ name, count: endedOf(total), took: total.tookMs }] : []))
    .sort((a, b) => b.count - a.count).slice(0, mostWorkflows);
  const runs = (of: Filter, more: string) => href(["runs"], { q: `${formatFilter(of)} ${more}`.trim() });
  const own: Filter = workflow ? [{ field: "workflow", value: workflow }] : [];
  // Runs that ended in an interval are found by when they ended, and those that started by when they were created.
  const ended = (more: Filter) => (from: number, to: number) => go(runs([...own, ...more], `ended:${iso(from)} endedbefore:${iso(to)}`));
  const created = (from: number, to: number) => go(runs(own, `created:${iso(from)} before:${iso(to)}`));
  const common = { start: w.start, stepMs: w.stepMs, completeTo: Date.parse(completeTo) };
  const per = { hour: "minute", day: "hour", week: "6 hours" }[range.name];
  return (
    <div class="charts">
      <Chart {...common} title={`Runs per ${per}, by end`} unit="runs" onPick={ended([])}
        series={[counts("completed", (p) => p.completed), counts("failed", (p) => p.failed), counts("cancelled", (p) => p.cancelled)]} />
      <Chart {...common} title={`New runs per ${per}, by workflow`} unit="runs" onPick={created}
        series={started.length > 0 ? started : [{ ...counts("created", (p) => p.created), look: "s0" }]} />
      <Chart {...common} title="How long runs take" unit="ms" onPick={ended([])} series={took("tookMs", ["p50", "p95", "p99"])} />
      <Chart {...common} title="How long runs wait for their start" unit="ms" onPick={created} series={took("delayMs", ["p50", "p95", "p99"])} />
      <Chart {...common} title="Failed runs, by workflow" unit="runs" onPick={ended([{ field: "status", value: "failed" }])}
        series={failed.length > 0 ? failed : [counts("failed", (p) => p.failed)]} />
      <Latency rows={latency} to={(name) => runs([{ field: "workflow", value: name }], `ended:${iso(w.start)} endedbefore:${iso(w.start + w.stepMs * w.count)}`)} />
      <LimitsInUse all={limits} />
    </div>
  );
}

// usesOf returns how full a limit is, from 0 to 1, if it bounds how many are under way in all.
const usesOf = (l: Limit) => (l.total ? Math.min(1, (l.held ?? 0) / l.total) : 0);

// LimitsInUse shows the limits that are used the most. Without limits there is nothing to show.
function LimitsInUse({ all }: { all: Limit[] }) {
  const limits = all.filter((l) => l.held || l.waiting).sort((a, b) => (b.waiting ?? 0) - (a.waiting ?? 0) || usesOf(b) - usesOf(a)).slice(0, mostLimits);
  if (limits.length === 0) return null;
  return (
    <figure class="chart latency">
      <figcaption><h2>Limits in use</h2><span class="quiet small">slots that are held, and what waits</span></figcaption>
      <table><thead class="hidden"><tr><th>Limit</th><th>Use</th><th>Held</th><th>Waiting</th></tr></thead>
        <tbody>{limits.map((l) => (
          <tr key={l.name}><td><a href={href(["limits", l.name])}>{l.name}</a></td>
            <td class="range"><div><i class="bar-of" style={{ left: 0, width: `${(usesOf(l) * 100).toFixed(1)}%` }} /></div></td>
            <td class="num">{(l.held ?? 0).toLocaleString("en")}{l.total ? ` of ${l.total.toLocaleString("en")}` : " held"}</td>
            <td class="num">{l.waiting ? `${l.waiting.toLocaleString("en")} wait` : <span class="quiet">none waits</span>}</td></tr>
        ))}</tbody></table>
    </figure>
  );
}
