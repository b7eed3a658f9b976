// The table of the list of runs.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { tick } from "../clock";
import type { Run } from "../api.gen";
import { attributeOf, titleOfColumn } from "../lib/columns";
import { formatDuration } from "../lib/duration";
import { withTerm, type Filter } from "../lib/filter";
import { shortId } from "../lib/path";
import { durationOf, hasEnded, stateOfRun, whenOf } from "../lib/status";
import { go, href } from "../location";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Age, Clock } from "../parts/time";

export interface TableProps {
  rows: Run[];
  columns: string[];
  filter: Filter;
  change: (f: Filter) => void;
  // The row that has the focus or is to have it; -1 for none.
  focused: number;
  focus: (i: number) => void;
  isSelected: (id: string) => boolean;
  select: (id: string, range: boolean) => void;
  selectShown: (on: boolean) => void;
}

const numbers = ["created", "ended", "took", "events"];

// Rows exist in chunks of so many while they are near the screen, and that of the focus always. So the page stays small
// however long the list is.
const chunkSize = 25;
const nearBy = "400px 0px";
const usualHeight = 33; // of a row, until its chunk has been on the screen
const heights = new Map<number, number>(); // of chunks when they were on the screen last, also before the reader came back

export function Table(props: TableProps) {
  const { rows, columns, isSelected, selectShown } = props;
  const all = rows.every((r) => isSelected(r.id));
  const chunks: number[] = [];
  for (let i = 0; i < rows.length; i += chunkSize) chunks.push(i);
  return (
    <table class="list runs" aria-rowcount={rows.length + 1}>
      <thead><tr>
        <th class="check"><input type="checkbox" aria-label="Select all rows" checked={all} onChange={() => selectShown(!all)} /></th>
        <th>Status</th><th>Run</th>
        {columns.map((c) => <th class={numbers.includes(c) ? "num" : undefined}>{titleOfColumn(c)}</th>)}
      </tr></thead>
      {chunks.map((first) => <Chunk key={first} first={first} {...props} />)}
    </table>
  );
}

function Chunk({ first, rows: all, columns, filter, change, focused, focus, isSelected, select }: TableProps & { first: number }) {
  const box = useRef<HTMLTableSectionElement>(null);
  const near = useSignal(first < 2 * chunkSize);
  const rows = all.slice(first, first + chunkSize);
  const shown = near.value || (focused >= first && focused < first + chunkSize);
  useLayoutEffect(() => {
    const watch = new IntersectionObserver((seen) => (near.value = seen.at(-1)!.isIntersecting), { rootMargin: nearBy });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (shown) heights.set(first, box.current!.offsetHeight);
  });
  if (!shown) {
    return <tbody ref={box} class="away" aria-hidden="true"><tr><td colSpan={columns.length + 3} style={{ height: `${heights.get(first) ?? rows.length * usualHeight}px` }} /></tr></tbody>;
  }
  return (
    <tbody ref={box}>{rows.map((r, i) => (
      <tr key={r.id} aria-selected={isSelected(r.id)} aria-rowindex={first + i + 2} onClick={(e) => {
        focus(first + i); // not all browsers give it to links
        if (!(e.target as Element).closest("a, button, .check")) go(href(["runs", r.id]));
      }}>
        <td class="check"><label><input type="checkbox" aria-label={`Select run ${shortId(r.id)}`} checked={isSelected(r.id)}
          onClick={(e) => select(r.id, e.shiftKey)} /></label></td>
        <td><Status {...stateOfRun(r, tick.value)} /></td>
        <td><a href={href(["runs", r.id])} id={`run-${first + i}`} class="mono" title={r.id} onFocus={() => focus(first + i)}>{shortId(r.id)}</a></td>
        {columns.map((c) => <Cell column={c} run={r}><Content column={c} run={r} filter={filter} change={change} /></Cell>)}
      </tr>
    ))}</tbody>
  );
}

function Cell({ column, run, children }: { column: string; run: Run; children: ComponentChildren }) {
  const empty = column === "tags" ? !run.key && Object.keys(run.attributes).length === 0
    : attributeOf(column) !== null && run.attributes[attributeOf(column)!] === undefined;
  const kind = attributeOf(column) !== null ? "tags" : numbers.includes(column) ? `num c-${column}` : column === "workflow" ? "strong" : column === "tags" ? "tags" : `c-${column}`;
  return <td class={empty ? `${kind} none` : kind}>{children}</td>;
}

interface ContentProps {
  column: string;
  run: Run;
  filter: Filter;
  change: (f: Filter) => void;
}

function Content({ column, run: r, filter, change }: ContentProps) {
  const attribute = attributeOf(column);
  if (attribute !== null) {
    const value = r.attributes[attribute];
    return value === undefined ? <span class="quiet">–</span>
      : <button type="button" class="tag" title="Only runs with this attribute" onClick={() => change(withTerm(filter, { attribute, value }))}>{value}</button>;
  }
  switch (column) {
    case "workflow": return <Name of={r.workflow} />;
    case "deployment": return <>{r.deployment}</>;
    case "tags": return <Tags run={r} filter={filter} change={change} />;
    case "created": return <Age at={r.createdAt} />;
    case "ended": return r.completedAt ? <Age at={r.completedAt} /> : <>–</>;
    case "took": return <>{r.startedAt || r.completedAt ? formatDuration(durationOf(r, tick.value)) : "–"}</>;
    case "events": return <>{r.lastSeq.toLocaleString("en")}</>;
    default: return <Now run={r} />;
  }
}

function Tags({ run, filter, change }: { run: Run; filter: Filter; change: (f: Filter) => void }) {
  const attributes = Object.entries(run.attributes).sort(ownFirst);
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

// ownFirst puts the attributes that the server has set, whose names begin with $, behind the others.
function ownFirst([a]: [string, string], [b]: [string, string]): number {
  return Number(a.startsWith("$")) - Number(b.startsWith("$"));
}

// Now says why the run is not done, or how it failed.
function Now({ run }: { run: Run }) {
  if (run.reason && !hasEnded(run)) {
    const when = whenOf(run.reason);
    return (
      <>{run.reason.summary}{when && <span class="quiet when"> · {when.word} {when.as === "age" ? <Age at={when.at} />
        : when.as === "clock" ? <Clock at={when.at} /> : formatDuration(Math.max(0, tick.value - Date.parse(when.at)))}</span>}</>
    );
  }
  if (run.error) return <span class="mono">{run.error.code || "no code"}</span>;
  return <span class="quiet">–</span>;
}
