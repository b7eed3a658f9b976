// When the runs of a workflow were started in the last week, by the hour of the day.
import { call } from "../api";
import { clock } from "../clock";
import { formatFilter } from "../lib/filter";
import { heatOf, type Cell } from "../lib/heat";
import { href, project } from "../location";
import { HeatMap } from "../parts/heatmap";
import { Loading, Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { zone } from "../settings";

const hour = 3_600_000;
const hours = 7 * 24;

const iso = (ms: number) => new Date(ms).toISOString();

export function Starts({ workflow }: { workflow: string }) {
  const read = useResource(async (signal) => {
    const start = (Math.floor(clock.now() / hour) + 1 - hours) * hour;
    const query = { from: iso(start), to: iso(start + hours * hour), step: "1h", workflow };
    const { data } = await call(project.value, "GET /v1/stats/runs", { query, signal });
    return { start, points: data[0]?.points.map((p) => ({ at: p.at, count: p.created })) ?? [] };
  }, [project.value, workflow]);
  const stats = read.data.value;
  const to = (c: Cell) => href(["runs"], { q: `${formatFilter([{ field: "workflow", value: workflow }])} created:${iso(c.from)} before:${iso(c.to)}` });
  return (
    <>
      <h2 class="gap">New runs of {workflow}, by hour <span class="quiet">({zone.value})</span></h2>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!stats && !read.problem.value && <Loading what="the statistics" />}
      {stats && <HeatMap label={`New runs of ${workflow} by day and hour`} days={heatOf(stats.points, stats.start, hours, zone.value)} to={to} />}
    </>
  );
}
