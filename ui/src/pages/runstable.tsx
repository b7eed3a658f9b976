// The table of the list of runs.
import type { ComponentChildren } from "preact";
import { tick } from "../clock";
import type { Run } from "../api.gen";
import { attributeOf, titleOfColumn } from "../lib/columns";
import { formatDuration } from "../lib/duration";
import { withTerm, type Filter } from "../lib/filter";
import { shortId } from "../lib/path";
import { durationOf, stateOfRun } from "../lib/status";
import { go, href } from "../location";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Age } from "../parts/time";

export interface TableProps {
  rows: Run[];
  columns: string[];
  filter: Filter;
  change: (f: Filter) => void;
  focus: (i: number) => void;
  isSelected: (id: string) => boolean;
  select: (id: string, range: boolean) => void;
  selectShown: (on: boolean) => void;
}

const numbers = ["created", "ended", "took", "events"];

export function Table({ rows, columns, filter, change, focus, isSelected, select, selectShown }: TableProps) {
  const all = rows.every((r) => isSelected(r.id));
  return (
    <table class="list runs">
      <thead><tr>
        <th class="check"><input type="checkbox" aria-label="Select all rows" checked={all} onChange={() => selectShown(!all)} /></th>
        <th>Status</th><th>Run</th>
        {columns.map((c) => <th class={numbers.includes(c) ? "num" : undefined}>{titleOfColumn(c)}</th>)}
      </tr></thead>
      <tbody>{rows.map((r, i) => (
        <tr key={r.id} aria-selected={isSelected(r.id)} onClick={(e) => {
          if (!(e.target as Element).closest("a, button, .check")) go(href(["runs", r.id]));
        }}>
          <td class="check"><label><input type="checkbox" aria-label={`Select run ${shortId(r.id)}`} checked={isSelected(r.id)}
            onClick={(e) => select(r.id, e.shiftKey)} /></label></td>
          <td><Status {...stateOfRun(r, tick.value)} /></td>
          <td><a href={href(["runs", r.id])} id={`run-${i}`} class="mono" title={r.id} onFocus={() => focus(i)}>{shortId(r.id)}</a></td>
          {columns.map((c) => <Cell column={c} run={r}><Content column={c} run={r} filter={filter} change={change} /></Cell>)}
        </tr>
      ))}</tbody>
    </table>
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
  const attributes = Object.entries(run.attributes);
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

function Now({ run }: { run: Run }) {
  if (run.blocked) return <><span class="mono">{run.blocked.code}</span> <span class="quiet">{run.blocked.attempts} calls failed</span></>;
  if (run.error) return <span class="mono">{run.error.code || "no code"}</span>;
  if (run.startAt && Date.parse(run.startAt) > tick.value) return <span class="quiet">starts <Age at={run.startAt} /></span>;
  return <span class="quiet">{run.driver === "client" ? "Workflow SDK" : run.deployment}</span>;
}
