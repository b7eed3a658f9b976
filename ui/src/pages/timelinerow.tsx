// One row of the timeline.
import type { TimelinePart } from "../api.gen";
import { formatAge, formatDuration } from "../lib/duration";
import { drawingOf, isFailure, labelOf, nextAt, startOf, stateOfName, stateOfPart, stretchesOf, type Item, type Row, type Segment } from "../lib/lanes";
import { isSdkId, titleOf, titleOfPart } from "../lib/names";
import { percent, type Axis, type View } from "../lib/scale";
import type { State } from "../lib/status";
import { Glyph } from "../parts/icon";

export interface Scale {
  axis: Axis;
  view: View;
  now: number;
}

export interface RowProps {
  row: Row;
  index: number;
  scale: Scale;
  active: boolean;
  selected: boolean;
  press: (r: Row) => void;
  toggle: (r: Row) => void;
}

export function TimelineRow({ row, index, scale, active, selected, press, toggle }: RowProps) {
  const i = row.item;
  const state = stateOf(i);
  return (
    <div role="row" id={`tl-${index}`} class={`tl-row${active ? " active" : ""}`} aria-level={row.level} aria-rowindex={index + 1}
      aria-expanded={row.opened} aria-selected={selected} aria-label={labelOf(row, scale.now)} onClick={() => press(row)}>
      <span role="gridcell" class="tl-name" style={{ paddingLeft: `${(row.level - 1) * 16}px` }} title={labelOf(row, scale.now)}>
        <i class={`tl-twist${row.opened === undefined ? "" : row.opened ? " open" : " closed"}`} aria-hidden="true"
          onClick={(e) => { if (row.opened !== undefined) { e.stopPropagation(); toggle(row); } }} />
        {state && <Glyph look={state.look} />}
        <Name item={i} />
      </span>
      <span role="gridcell" class="tl-note quiet">{noteOf(i, scale.now)}</span>
      <span role="gridcell" class="tl-bar"><Bar item={i} scale={scale} /></span>
    </div>
  );
}

export function stateOf(i: Item): State | null {
  if (i.kind === "name") return stateOfName(i.sum);
  if (i.kind === "part") return stateOfPart(i.part);
  if (i.kind === "note") return null;
  if (isFailure(i.part, i.n)) return { look: "failed", word: i.part.attempts![i.n]!.outcome! };
  return i.part.attempts![i.n]!.outcome ? { look: "completed", word: "completed" } : stateOfPart(i.part);
}

function Name({ item: i }: { item: Item }) {
  if (i.kind === "note") {
    return <span class="quiet">{i.text}{i.more && <> <button type="button" class="link" tabIndex={-1}>Show more</button></>}</span>;
  }
  if (i.kind === "name") return <><b>{titleOf(i.sum.name)}</b> <span class="quiet">×{i.sum.count.toLocaleString("en")}</span></>;
  const p = i.part;
  if (i.kind === "attempt") {
    return <span class="quiet">{p.cut ? "later attempt" : `attempt ${i.n + 1}`} {p.attempts![i.n]!.code}</span>;
  }
  return <>{p.childId && "↳ "}{p.kind !== "step" && <i class={`tl-kind ${p.kind}`} aria-hidden="true" />}<b>{titleOfPart(p)}</b>
    {p.name !== undefined && p.name !== p.id && !isSdkId(p.id) && <span class="quiet mono"> {p.id}</span>}
    {p.outcome && <span class="quiet"> {stateOfPart(p).word}</span>}
    {p.undo && <span class="quiet"> undo: {p.undo}</span>}
    {p.at && <span class="quiet mono"> {p.at}</span>}</>;
}

function noteOf(i: Item, now: number): string {
  if (i.kind === "note") return "";
  if (i.kind === "name") return i.sum.p50Ms === undefined ? "" : `p50 ${formatDuration(i.sum.p50Ms)}`;
  const p = i.part;
  if (i.kind === "attempt") return formatDuration(Math.max(0, (at(p.attempts![i.n]!.endedAt) || now) - at(p.attempts![i.n]!.startedAt)));
  if (nextAt(p) > now) return formatAge(now - nextAt(p));
  return formatDuration(Math.max(0, (at(p.endedAt) || now) - startOf(p)));
}

const at = (t: string | undefined) => (t ? Date.parse(t) : 0);

function Bar({ item: i, scale }: { item: Item; scale: Scale }) {
  if (i.kind === "note") return null;
  if (i.kind === "name") return <Density item={i} scale={scale} />;
  const d = drawingOf(i.part, scale.now);
  if (i.kind === "attempt") {
    const a = i.part.attempts![i.n]!;
    return <Segments list={d.segments.filter((s) => s.from === at(a.startedAt) && s.shape !== "backoff" && s.shape !== "queued")} scale={scale} />;
  }
  const place = (t: number) => percent(scale.axis, scale.view, t);
  return <>
    <Segments list={d.segments} scale={scale} />
    {i.part.kind !== "step" && <i class={`tl-kind ${i.part.kind}`} style={{ left: `${place(at(i.part.createdAt))}%` }} />}
    {d.marks.map((t) => <i class="tl-mark" style={{ left: `${place(t)}%` }} />)}
    <End part={i.part} place={place} />
  </>;
}

// End shows how a part ended.
function End({ part, place }: { part: TimelinePart; place: (t: number) => number }) {
  const end = at(part.endedAt);
  const { look } = stateOfPart(part);
  if (end === 0 || look === "failed" && part.kind === "step") return null; // its attempt has the cross
  return <span class="tl-end" style={{ left: `${place(end)}%` }}><Glyph look={look} /></span>;
}

function Segments({ list, scale }: { list: Segment[]; scale: Scale }) {
  return <>{list.map((s) => {
    const from = percent(scale.axis, scale.view, s.from);
    const to = percent(scale.axis, scale.view, s.to);
    if (to <= -5 || from >= 105) return null;
    return <>
      <i class={`tl-seg ${s.shape} ${s.look}${s.open ? " open" : ""}`} style={{ left: `${from}%`, width: `${to - from}%` }} />
      {s.shape === "failed" && <span class="tl-end" style={{ left: `${to}%` }}><Glyph look="failed" /></span>}
    </>;
  })}</>;
}

// Density shows how many steps of a name were open.
function Density({ item, scale }: { item: Item & { kind: "name" }; scale: Scale }) {
  const place = (t: number) => percent(scale.axis, scale.view, t).toFixed(2);
  const most = Math.max(1, ...item.sum.density);
  const path = stretchesOf(item.sum).map((s) => `M${place(s.from)} 20V${(19 - 17 * s.count / most).toFixed(1)}H${place(s.to)}V20`).join("");
  const look = item.sum.failed * 2 > item.sum.count ? "failed" : item.sum.running > 0 ? "running" : "completed"; // of most
  return <svg class={`tl-density ${look}`} viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"><path d={path} /></svg>;
}
