// Charts of numbers by intervals of time: counts as stacked bars, durations as steps of lines on a logarithmic scale. Series are told apart by
// patterns and dashes, and colours repeat them. Arrow keys read the values, and a table has them all.
import { signal, useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { formatDuration } from "../lib/duration";
import { logScale } from "../lib/logscale";
import { niceMax, stack, sumOf, type Values } from "../lib/series";
import { partsOf } from "../lib/zone";
import { zone } from "../settings";

export interface Series {
  name: string;
  // A state, as in lib/status.ts, or s0 to s5: it gives the colour.
  look: string;
  values: Values;
}

export interface ChartProps {
  title: string;
  series: Series[];
  // The start of the first interval and the length of each, in milliseconds.
  start: number;
  stepMs: number;
  // What is counted, such as "runs"; "ms" for durations, which are not added up.
  unit: string;
  // Intervals that end later are hatched: they are not counted to their end.
  completeTo?: number;
  // Opens what is behind an interval.
  onPick?: (from: number, to: number) => void;
}

const width = 600;
const height = 120;
// The patterns of bars and the dashes of lines, by the place of the series.
const patterns = ["", "M0 0L6 6M0 6L6 0", "M0 3H6", "M3 0V6", "M0 3H6M3 0V6", "M2 3h2"];
const dashes = ["", "7 3", "2 3"];

// pointed is the time at which readers look, in all charts at once; 0 if at none.
const pointed = signal(0);

// formatAmount returns a value with its unit as people read it.
function formatAmount(v: number | null, unit: string): string {
  if (v === null) return "–";
  return unit === "ms" ? formatDuration(v) : v.toLocaleString("en");
}

// labelOf returns the start of an interval: the time, with its date where that matters.
function labelOf(at: number, p: ChartProps): string {
  const { date, time } = partsOf(new Date(at), zone.value);
  return (count(p) * p.stepMs > 86_400_000 || p.stepMs >= 3_600_000 ? `${date.slice(5)} ` : "") + time.slice(0, 5);
}

const count = (p: ChartProps) => p.series[0]?.values.length ?? 0;

export function Chart(p: ChartProps) {
  const table = useSignal(false);
  const id = useId();
  const n = count(p);
  const index = Math.floor((pointed.value - p.start) / p.stepMs);
  const at = index >= 0 && index < n ? index : -1;
  const total = p.unit === "ms" ? 1 : p.series.reduce((sum, s) => sum + sumOf(s.values), 0);
  const empty = p.series.every((s) => s.values.every((v) => !v));
  const drawn = !empty && !table.value; // the patterns are in the plot
  return (
    <figure class="chart">
      <figcaption>
        <h2>{p.title}</h2>
        <button type="button" class="link" aria-expanded={table.value} onClick={() => (table.value = !table.value)}>{table.value ? "Chart" : "Table"}</button>
      </figcaption>
      <div class="readout">
        <span class="when quiet">{at < 0 ? (p.unit === "ms" || n === 0 ? "" : `${total.toLocaleString("en")} ${total === 1 ? p.unit.replace(/s$/, "") : p.unit}`) : labelOf(p.start + at * p.stepMs, p)}</span>
        {p.series.map((s, i) => (
          <span class={`key ${s.look}`}>{drawn && <Swatch line={p.unit === "ms"} i={i} id={id} />}{s.name}{" "}
            {at >= 0 ? <b>{formatAmount(s.values[at] ?? null, p.unit)}</b> : p.unit !== "ms" && <b>{sumOf(s.values).toLocaleString("en")}</b>}</span>
        ))}
      </div>
      {table.value ? <Table {...p} /> : empty ? <p class="chart-empty quiet">Nothing in this time.</p> : <Plot {...p} id={id} at={at} />}
    </figure>
  );
}

function Swatch({ line, i, id }: { line: boolean; i: number; id: string }) {
  return (
    <svg width="14" height="10" aria-hidden="true">
      {line ? <path class="curve" d="M0 5H14" stroke-dasharray={dashes[i % 3]} /> : <rect width="14" height="10" fill={`url(#${id}-${i})`} />}
    </svg>
  );
}

function Plot(p: ChartProps & { id: string; at: number }) {
  const n = count(p);
  const lines = p.unit === "ms";
  const stacked = lines ? [] : stack(p.series.map((s) => s.values));
  const scale = lines ? logScale(p.series.flatMap((s) => s.values)) : null;
  const top = scale?.ticks.at(-1) ?? niceMax(Math.max(...stacked.at(-1)!.map((b) => b.to)));
  const step = width / n;
  const y = (v: number) => height - (scale ? scale.placeOf(v) : v / top) * height;
  const marks = scale?.ticks ?? [top / 2, top];
  const complete = Math.min(n, Math.max(0, Math.floor(((p.completeTo ?? Infinity) - p.start) / p.stepMs)));
  const look = (i: number) => (pointed.value = p.start + Math.max(0, Math.min(n - 1, i)) * p.stepMs);
  const pick = (i: number) => p.onPick?.(p.start + i * p.stepMs, p.start + (i + 1) * p.stepMs);
  const under = (e: MouseEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    return Math.floor(((e.clientX - box.left) / box.width) * n);
  };
  const press = (e: KeyboardEvent) => {
    const to: Record<string, number> = { ArrowLeft: p.at - 1, ArrowRight: p.at + 1, Home: 0, End: n - 1 };
    if (e.key === "Enter" && p.at >= 0) pick(p.at);
    else if (e.key === "Escape") pointed.value = 0;
    else if (e.key in to) look(p.at < 0 && e.key === "ArrowLeft" ? n - 1 : to[e.key]!);
    else return;
    e.preventDefault();
  };
  const said = p.at < 0 ? "arrow keys read the values" : `${labelOf(p.start + p.at * p.stepMs, p)}: ` +
    p.series.map((s) => `${s.name} ${formatAmount(s.values[p.at] ?? null, p.unit)}`).join(", ");
  return (
    <>
      <div class={p.onPick ? "plot pick" : "plot"} role="slider" tabIndex={0} aria-label={p.title} aria-valuemin={0} aria-valuemax={n - 1}
        aria-valuenow={Math.max(0, p.at)} aria-valuetext={said} onKeyDown={press} onBlur={() => (pointed.value = 0)}
        onPointerMove={(e) => look(under(e))} onPointerLeave={() => (pointed.value = 0)} onClick={(e) => pick(under(e))}>
        <span class="top-value quiet">{formatAmount(top, p.unit)}</span>
        {scale && scale.ticks.filter((t) => y(t) > 28).map((t) => <span class="top-value quiet" style={{ top: `${(1 - scale.placeOf(t)) * height - 13}px` }}>{formatDuration(t)}</span>)}
        <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
          <defs>
            {p.series.map((s, i) => <Pattern id={`${p.id}-${i}`} class={s.look} d={patterns[i % 6]!} />)}
            <Pattern id={`${p.id}-open`} class="open" d="M0 6L6 0" />
          </defs>
          <path class="grid" d={marks.map((m) => `M0 ${Math.max(0.5, y(m))}H${width}`).join("")} />
          {p.at >= 0 && <rect class="at" x={p.at * step} y="0" width={step} height={height} />}
          {lines
            ? p.series.map((s, i) => <path class={`curve ${s.look}`} stroke-dasharray={dashes[i % 3]} d={curve(s.values, step, y)} />)
            : stacked.map((bars, i) => <path class="bars" fill={`url(#${p.id}-${i})`} d={bars.map((b, x) => b.to > b.from
              ? `M${x * step + step * 0.08} ${y(b.from)}h${step * 0.84}V${y(b.to)}h${-step * 0.84}z` : "").join("")} />)}
          {complete < n && <rect class="unfinished" x={complete * step} y="0" width={(n - complete) * step} height={height} fill={`url(#${p.id}-open)`} />}
        </svg>
      </div>
      <div class="axis-labels quiet" aria-hidden="true">
        {[0, Math.floor(n / 2), n - 1].map((i) => <span>{labelOf(p.start + i * p.stepMs, p)}</span>)}
      </div>
    </>
  );
}

function Pattern({ id, class: look, d }: { id: string; class: string; d: string }) {
  return (
    <pattern id={id} class={look} width="6" height="6" patternUnits="userSpaceOnUse">
      {look !== "open" && <rect class="ground" width="6" height="6" />}
      <path class="hatch" d={d} />
    </pattern>
  );
}

// curve returns a line at the height of each value. Intervals without one are gaps.
function curve(values: Values, step: number, y: (v: number) => number): string {
  return values.map((v, i) => v === null ? "" : `${(values[i - 1] ?? null) === null ? "M" : "L"}${i * step} ${y(v)}H${(i + 1) * step}`).join("");
}

function Table(p: ChartProps) {
  return (
    <div class="chart-table" tabIndex={0} role="region" aria-label={`${p.title}, as a table`}>
      <table class="list">
        <thead><tr><th>From ({zone.value})</th>{p.series.map((s) => <th class="num">{s.name}</th>)}</tr></thead>
        <tbody>{Array.from({ length: count(p) }, (_, i) => count(p) - 1 - i).map((i) => (
          <tr key={i}><td>{p.onPick ? <button type="button" class="link" onClick={() => p.onPick!(p.start + i * p.stepMs, p.start + (i + 1) * p.stepMs)}>
            {labelOf(p.start + i * p.stepMs, p)}</button> : labelOf(p.start + i * p.stepMs, p)}</td>
          {p.series.map((s) => <td class="num">{formatAmount(s.values[i] ?? null, p.unit)}</td>)}</tr>
        ))}</tbody>
      </table>
    </div>
  );
}
