// How long the runs of each workflow take, on a logarithmic scale: bars from the median to the 95th percentile.
import type { Percentiles } from "../api.gen";
import { formatDuration } from "../lib/duration";
import { logScale } from "../lib/logscale";
import { Name } from "./name";

interface LatencyProps {
  // The workflows with runs that ended, those with the most first.
  rows: Array<{ name: string; count: number; took: Percentiles }>;
  // The address of the runs behind a row.
  to: (name: string) => string;
}

export function Latency({ rows, to }: LatencyProps) {
  const { ticks, placeOf } = logScale(rows.flatMap((r) => [r.took.p50, r.took.p95]));
  const left = (ms: number) => `${(placeOf(ms) * 100).toFixed(2)}%`;
  const width = (r: LatencyProps["rows"][number]) => `${((placeOf(r.took.p95) - placeOf(r.took.p50)) * 100).toFixed(2)}%`;
  return (
    <figure class="chart latency">
      <figcaption><h2>How long runs take, by workflow</h2><span class="quiet small">p50 to p95, log scale</span></figcaption>
      {rows.length === 0 ? <p class="chart-empty quiet">Nothing in this time.</p> : (
        <table><thead class="hidden"><tr><th>Workflow</th><th>Range</th><th>p50</th><th>p95</th></tr></thead>
          <tbody>{rows.map((r) => (
            <tr key={r.name}><td><a href={to(r.name)} title={`${r.count.toLocaleString("en")} runs ended`}><Name of={r.name} /></a></td>
              <td class="range"><div>{ticks.map((t) => <i class="grid" style={{ left: left(t) }} />)}
                <i class="bar-of" style={{ left: left(r.took.p50), width: width(r) }} /></div></td>
              <td class="num">{formatDuration(r.took.p50)}</td><td class="num">{formatDuration(r.took.p95)}</td></tr>
          ))}</tbody>
          <tfoot aria-hidden="true"><tr><td /><td class="range"><div>{ticks.filter((_, i) => i % Math.ceil(ticks.length / 4) === 0).map((t) => <small style={{ left: left(t) }}>{formatDuration(t)}</small>)}</div></td><td class="num quiet">p50</td><td class="num quiet">p95</td></tr></tfoot>
        </table>
      )}
    </figure>
  );
}
