// Timeline of a run: what it did and when, on one axis.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Run } from "../api.gen";
import { addressOf, server } from "../api";
import { tick } from "../clock";
import { formatDuration } from "../lib/duration";
import { gapsOf, type Span } from "../lib/gaps";
import { busyOf, fails, holdsUp, nextOf, rowsOf, startOf, stretchesOf, type Choice, type Row, type Source } from "../lib/lanes";
import { apart, Axis, isWhole, percent, ticksOf, whole, within, zoom, type View } from "../lib/scale";
import { curl, quote } from "../lib/shell";
import { hasEnded } from "../lib/status";
import { partsOf } from "../lib/zone";
import { go, href, search } from "../location";
import { Also } from "../parts/copy";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Virtual } from "../parts/virtual";
import { zone } from "../settings";
import { useKeys } from "../shortcuts";
import { useTimeline, type Long, type StepStatus } from "./timelinedata";
import { TimelinePanel } from "./timelinepanel";
import { TimelineRow } from "./timelinerow";

const rowHeight = 28;

export function Timeline({ run }: { run: Run }) {
  const data = useTimeline(run);
  const choice = useSignal<Choice>({ folded: true, only: "", find: "" });
  const cuts = useSignal(true);
  const active = useSignal("");
  const selected = useSignal("");
  const target = useSignal(-1);
  const said = useSignal("");
  const wanted = useSignal<{ under: string; holds: (r: Row) => boolean } | null>(null);
  const now = run.completedAt ? Date.parse(run.completedAt) : tick.value;
  const source = data.sources.get(run.id);
  const axis = useMemo(() => axisOf(run, source, data.inner, now, cuts.value, data.long?.next !== undefined), [source, data.inner, now, cuts.value]);
  const frame = useFrame(run, axis);
  const rows = useMemo(() => rowsOf(run.id, data.sources, data.opened, choice.value, now), [source, data.inner, data.opened, choice.value, now]);
  const at = Math.max(0, rows.findIndex((r) => r.key === active.value));
  const move = (n: number) => {
    const to = Math.max(0, Math.min(rows.length - 1, n));
    active.value = rows[to]?.key ?? "";
    target.value = to;
  };
  const toggle = (r: Row) => (r.opened ? data.close(r.key) : data.open(r));
  const jump = (what: string, holds: (r: Row) => boolean, statuses: StepStatus[]) => {
    const n = nextOf(rows, active.value, holds);
    const r = rows[n];
    said.value = r ? "" : what;
    if (!r) return;
    move(n);
    if (r.item.kind === "name") {
      data.open(r, statuses);
      wanted.value = { under: r.key, holds };
    } else selected.value = r.key;
  };
  useEffect(() => { // what a jump has opened
    const w = wanted.value;
    const first = w ? rows.findIndex((r) => r.key === w.under) + 1 : 0;
    if (!w || first === 0 || !rows[first - 1]!.opened || !rows[first] || rows[first].key === `${w.under}:reading`) return;
    wanted.value = null;
    const n = rows.findIndex((r, i) => i >= first && w.holds(r));
    if (n < 0) return;
    move(n);
    selected.value = rows[n]!.key;
  }, [rows, wanted.value]);
  const nextFailure = () => jump("Nothing has failed.", fails, ["failed"]);
  const nextOpen = () => jump("The run waits for nothing here.", holdsUp, ["pending", "running"]);
  useKeys({
    "+": () => frame.zoom(0.5), "=": () => frame.zoom(0.5), "-": () => frame.zoom(2), "0": frame.fit,
    e: nextFailure, n: nextOpen, ".": frame.toggleFollow,
  });
  const press = (r: Row) => {
    if (r.item.kind !== "note") selected.value = selected.value === r.key ? "" : r.key;
    else if (r.item.more) data.more(r.item.more);
  };
  const keys = treeKeys(rows, at, move, toggle, press, frame.pan, () => (selected.value = ""));
  const chosen = rows.find((r) => r.key === selected.value);
  if (!source) return data.main.problem.value ? <Trouble problem={data.main.problem.value} retry={data.main.refresh} /> : <Loading what="the timeline" />;
  if (source.parts.length === 0 && !source.names?.length) {
    return <Empty title="This run has no steps, hooks or waits"><p>They appear here when the run’s function asks for them.</p></Empty>;
  }
  const scale = { axis, view: frame.view, now };
  return (
    <div class="timeline">
      <Bar choice={choice} cuts={cuts} frame={frame} live={!hasEnded(run)} nextFailure={nextFailure} nextOpen={nextOpen} />
      {data.long && <LongNote long={data.long} from={data.from} />}
      {(data.problem ?? data.main.problem.value) && <Trouble problem={(data.problem ?? data.main.problem.value)!} retry={data.main.refresh} />}
      <p class="hidden" role="status">{said.value}</p>
      <Strip source={source} axis={axis} frame={frame} now={now} />
      <div class={`split ${chosen ? "open" : ""}`}>
        <div class="tl" onWheel={frame.wheel}>
          <Ruler axis={axis} view={frame.view} now={hasEnded(run) ? 0 : now} barRef={frame.bar} />
          <div class="tl-rows" style={{ height: `${rows.length * rowHeight + 2}px` }}>
            <Virtual count={rows.length} rowHeight={rowHeight} target={target.value} label={`Timeline of ${rows.length} rows`} tree={{ active: `tl-${at}`, onKeyDown: keys }}
              row={(i) => <TimelineRow key={rows[i]!.key} row={rows[i]!} index={i} scale={scale} active={i === at} selected={rows[i]!.key === selected.value}
                toggle={toggle} press={(r) => { active.value = r.key; press(r); }} />} />
          </div>
          {rows.length === 0 && <Empty title="No row matches" />}
          {data.full && <p class="quiet">2,000 steps, hooks and waits are read: select by name, or use the log for more.</p>}
        </div>
        {chosen && chosen.item.kind !== "note" && <TimelinePanel run={run} of={chosen.run} item={chosen.item} close={() => (selected.value = "")} />}
      </div>
      <Also what="The timeline" cli={`stepwell runs timeline ${quote(run.id)}${data.long ? " --names" : ""}`} curl={curl(server, "GET", data.long
        ? addressOf("GET /v1/runs/{id}/timeline/names", { path: { id: run.id } }) : addressOf("GET /v1/runs/{id}/timeline", { path: { id: run.id } }))} />
    </div>
  );
}

// spansOf returns when steps were open, and how many.
function spansOf(source: Source, now: number): Array<Span & { count: number }> {
  if (source.names) return source.names.flatMap(stretchesOf);
  return source.parts.filter((p) => p.kind === "step").map((p) => ({ from: startOf(p), to: p.endedAt ? Date.parse(p.endedAt) : now, count: 1 }));
}

// axisOf returns the axis of the run. What happened in opened children is no quiet time, nor is what was not summed up: what
// is before the first sum, and what is behind the last one if there is more.
function axisOf(run: Run, source: Source | undefined, inner: Map<string, Source>, now: number, cuts: boolean, more: boolean): Axis {
  const from = Math.min(Date.parse(run.createdAt), ...(source?.names ?? []).map((n) => Date.parse(n.firstAt)), ...(source?.names ? [] : source?.parts ?? []).map(startOf));
  const busy = source?.names ? [...spansOf(source, now), ...busyOf(source.parts, now)] : busyOf(source?.parts ?? [], now);
  for (const child of inner.values()) busy.push(...busyOf(child.parts, now));
  if (source?.names?.length) {
    busy.push({ from, to: Math.min(...source.names.map((n) => Date.parse(n.firstAt))) });
    if (more) busy.push({ from: Math.max(...source.names.map((n) => Date.parse(n.lastAt))), to: now });
  }
  if (run.startedAt) busy.push({ from: Date.parse(run.startedAt), to: Date.parse(run.startedAt) });
  return new Axis(from, Math.max(now, from + 1), cuts ? gapsOf(busy, from, now) : []);
}

type Frame = ReturnType<typeof useFrame>;

// useFrame keeps which part of the axis is shown: in the address, as times.
function useFrame(run: Run, axis: Axis) {
  const times = useSignal<Span | null>(null);
  const follow = useSignal(false);
  const bar = useRef<HTMLDivElement>(null);
  const timer = useRef(0);
  const written = useRef<string | null>(null); // to the address by this page: no reason to move
  const [from, to] = [search.value.get("from"), search.value.get("to")];
  useEffect(() => {
    if (`${from} ${to}` === written.current) return;
    const [a, b] = [Date.parse(from ?? ""), Date.parse(to ?? "")];
    times.value = b > a ? { from: a, to: b } : null;
  }, [from, to]);
  useEffect(() => () => clearTimeout(timer.current), []);
  let view = whole(axis);
  if (times.value) {
    view = within(axis, { from: axis.placeOf(times.value.from), to: axis.placeOf(times.value.to) });
    const end = whole(axis).to;
    if (follow.value) view = { from: Math.max(0, end - (view.to - view.from)), to: end };
  }
  const show = (v: View) => {
    times.value = isWhole(axis, v) ? null : { from: axis.timeOf(v.from), to: axis.timeOf(v.to) };
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      const [a, b] = times.value ? [new Date(times.value.from).toISOString(), new Date(times.value.to).toISOString()] : [null, null];
      written.current = `${a} ${b}`;
      go(href(["runs", run.id, "timeline"], { from: a ?? "", to: b ?? "" }), "replace");
    }, 200);
  };
  const zoomBy = (factor: number, at = 0.5) => show(zoom(axis, view, factor, at));
  const pan = (part: number) => {
    const by = (view.to - view.from) * part;
    follow.value = false;
    show(within(axis, { from: view.from + by, to: view.to + by }));
  };
  const wheel = (e: WheelEvent) => {
    const box = bar.current?.getBoundingClientRect();
    if (!e.ctrlKey || !box) return;
    e.preventDefault();
    zoomBy(Math.exp(Math.max(-1, Math.min(1, e.deltaY / 200))), Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)));
  };
  return {
    view, bar, show, pan, wheel, zoom: zoomBy, isWhole: times.value === null, follow: follow.value,
    fit: () => show(whole(axis)), toggleFollow: () => { follow.value = !follow.value; },
  };
}

interface BarProps {
  choice: Signal<Choice>;
  cuts: Signal<boolean>;
  frame: Frame;
  live: boolean;
  nextFailure: () => void;
  nextOpen: () => void;
}

function Bar({ choice, cuts, frame, live, nextFailure, nextOpen }: BarProps) {
  const set = (c: Partial<Choice>) => (choice.value = { ...choice.value, ...c });
  return (
    <div class="bar tl-tools">
      <div class="segmented" role="group" aria-label="Rows">
        {(["", "open", "failed"] as const).map((only) => <button type="button" aria-pressed={choice.value.only === only} onClick={() => set({ only })}>{only || "all"}</button>)}
      </div>
      <input type="search" aria-label="Name or ID" placeholder="name or ID" value={choice.value.find} onInput={(e) => set({ find: e.currentTarget.value.trim() })} />
      <label class="check"><input type="checkbox" checked={choice.value.folded} onChange={(e) => set({ folded: e.currentTarget.checked })} />Fold equal steps</label>
      <label class="check"><input type="checkbox" checked={cuts.value} onChange={(e) => (cuts.value = e.currentTarget.checked)} />Cut quiet time</label>
      <span class="space" />
      <button type="button" onClick={nextFailure} title="To the next failure (e)">Next failure</button>
      {live && <button type="button" onClick={nextOpen} title="To what the run waits for (n)">Waits for</button>}
      <button type="button" onClick={() => frame.zoom(2)} aria-label="Zoom out" title="Zoom out (−)">−</button>
      <button type="button" onClick={() => frame.zoom(0.5)} aria-label="Zoom in" title="Zoom in (+, or Ctrl and the wheel)">+</button>
      <button type="button" onClick={frame.fit} disabled={frame.isWhole} title="Show all (0)">Fit</button>
      {live && <button type="button" aria-pressed={frame.follow} onClick={frame.toggleFollow} title="Keep now at the right edge (.)">{frame.follow ? "✓ " : ""}Follow</button>}
    </div>
  );
}

function LongNote({ long, from }: { long: Long; from: Signal<string> }) {
  const number = (n: number) => n.toLocaleString("en");
  return (
    <p class="quiet tl-long">A long run: {number(long.steps)} steps{from.value ? " of a later part" : long.next ? ", the first ones," : ""} are summed up by name.
      {long.names > 200 && ` 200 of ${number(long.names)} names are shown.`} Of hooks and waits, the open ones and those among the newest 100 parts are shown.{" "}
      {long.next && <button type="button" onClick={() => (from.value = long.next!)}>Later steps</button>}{" "}
      {from.value && <button type="button" onClick={() => (from.value = "")}>First steps</button>}</p>
  );
}

// digitWidth is at most how wide a character of the axis is, in pixels.
const digitWidth = 6.6;

// Ruler is the axis: round times, and how long what is cut lasted. Where labels would overlap, one is left out: of cuts the
// shorter one.
function Ruler({ axis, view, now, barRef }: { axis: Axis; view: View; now: number; barRef: { current: HTMLDivElement | null } }) {
  const shown = useSignal(800);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([box]) => (shown.value = box!.contentRect.width));
    watch.observe(barRef.current!);
    return () => watch.disconnect();
  }, []);
  const width = shown.value;
  const ticks = ticksOf(axis, view, Math.max(1, Math.floor(width / 100)));
  const fine = ticks.length > 1 && ticks.some((t) => t % 1000 !== 0);
  const days = axis.to - axis.from > 86_400_000;
  const label = (t: number) => {
    const p = partsOf(new Date(t), zone.value);
    return fine ? `${p.time}.${p.millis}` : days ? `${p.date.slice(5)} ${p.time.slice(0, 5)}` : p.time;
  };
  const place = (t: number) => percent(axis, view, t);
  const inside = (t: number) => place(t) >= 0 && place(t) <= 100;
  const wide = (text: string) => text.length * digitWidth + 6;
  const isLast = (t: number) => place(t) > 92;
  const named = apart(ticks.map((t) => {
    const from = place(t) / 100 * width - (isLast(t) ? wide(label(t)) : 0);
    return { from, to: from + wide(label(t)) };
  }));
  const lengthOf = (g: Span) => formatDuration(g.to - g.from);
  const gaps = axis.gaps.filter((g) => inside(g.from) || inside(g.to)).sort((a, b) => (b.to - b.from) - (a.to - a.from));
  const measured = apart(gaps.map((g) => {
    const middle = (place(g.from) + place(g.to)) / 200 * width;
    return { from: middle - wide(lengthOf(g)) / 2, to: middle + wide(lengthOf(g)) / 2 };
  }));
  return (
    <div class="tl-head" aria-hidden="true">
      <span class="quiet">{zone.value}</span><span />
      <div class="tl-bar" ref={barRef}>
        {ticks.map((t, i) => named[i] && <span class={`tl-tick${isLast(t) ? " last" : ""}`} style={{ left: `${place(t)}%` }}>{label(t)}</span>)}
        {gaps.map((g, i) => (
          <span class="tl-gap" title={`${lengthOf(g)} in which nothing happened`} style={{ left: `${place(g.from)}%`, width: `${place(g.to) - place(g.from)}%` }}>
            {measured[i] && <small>{lengthOf(g)}</small>}</span>
        ))}
        {now > 0 && inside(now) && <span class="tl-now" style={{ left: `${place(now)}%` }} />}
      </div>
    </div>
  );
}

const columns = 120;

// Strip shows the whole run, and which part of it is below. Dragging selects a part, with Shift it moves it.
function Strip({ source, axis, frame, now }: { source: Source; axis: Axis; frame: Frame; now: number }) {
  const drag = useSignal<{ from: number; to: number; moves: boolean } | null>(null);
  const all = whole(axis);
  const path = useMemo(() => {
    const counts = new Array<number>(columns + 1).fill(0);
    const place = (t: number) => Math.max(0, Math.min(columns - 0.01, axis.placeOf(t) / all.to * columns));
    for (const s of spansOf(source, now)) { // each adds to a column what it has of it, and at least a little
      const [a, b] = [place(s.from), place(s.to)];
      for (let i = Math.floor(a); i <= b; i++) counts[i]! += s.count * Math.max(0.1, Math.min(i + 1, b) - Math.max(i, a));
    }
    const most = Math.max(0.1, ...counts);
    return counts.map((n, i) => (n > 0 ? `M${i} 20V${(19 - 18 * n / most).toFixed(1)}H${i + 1}V20` : "")).join("");
  }, [source, axis]);
  const part = (e: PointerEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    return Math.max(0, Math.min(1, (e.clientX - box.left) / box.width)) * all.to;
  };
  const down = (e: PointerEvent) => {
    (e.currentTarget as Element).setPointerCapture(e.pointerId);
    drag.value = { from: part(e), to: part(e), moves: e.shiftKey };
  };
  const moved = (e: PointerEvent) => {
    const d = drag.value;
    if (!d) return;
    if (d.moves) {
      const by = part(e) - d.to;
      frame.show(within(axis, { from: frame.view.from + by, to: frame.view.to + by }));
    }
    drag.value = { ...d, to: part(e) };
  };
  const up = () => {
    const d = drag.value;
    drag.value = null;
    if (d && !d.moves && Math.abs(d.to - d.from) > all.to / 200) frame.show(within(axis, { from: Math.min(d.from, d.to), to: Math.max(d.from, d.to) }));
  };
  const d = drag.value && !drag.value.moves ? drag.value : frame.view;
  const clock = (place: number) => partsOf(new Date(axis.timeOf(place)), zone.value).time;
  return (
    <div class="tl-strip" role="img" aria-label={`Activity of the whole run. Shown is ${clock(frame.view.from)} to ${clock(Math.min(frame.view.to, axis.length))}.`}
      title="Drag to zoom, Shift and drag to move" onPointerDown={down} onPointerMove={moved} onPointerUp={up} onPointerCancel={() => (drag.value = null)}>
      <svg viewBox={`0 0 ${columns} 20`} preserveAspectRatio="none" aria-hidden="true"><path d={path} /></svg>
      <i style={{ left: `${Math.min(d.from, d.to) / all.to * 100}%`, width: `${Math.abs(d.to - d.from) / all.to * 100}%` }} />
    </div>
  );
}

// treeKeys returns the handler of a tree's keys.
function treeKeys(
  rows: Row[], at: number, move: (n: number) => void, toggle: (r: Row) => void, select: (r: Row) => void, pan: (part: number) => void, close: () => void,
) {
  return (e: KeyboardEvent) => {
    const r = rows[at];
    if (!r || e.ctrlKey || e.metaKey || e.altKey) return;
    const page = 15;
    const parent = () => rows.findLastIndex((p, i) => i < at && p.level < r.level);
    const actions: Record<string, () => void> = {
      ArrowDown: () => move(at + 1), ArrowUp: () => move(at - 1), Home: () => move(0), End: () => move(rows.length - 1),
      PageDown: () => move(at + page), PageUp: () => move(at - page), Enter: () => select(r), Escape: close,
      ArrowRight: () => (e.shiftKey ? pan(0.25) : r.opened === false ? toggle(r) : r.opened && move(at + 1)),
      ArrowLeft: () => (e.shiftKey ? pan(-0.25) : r.opened ? toggle(r) : parent() >= 0 && move(parent())),
    };
    const found = actions[e.key];
    if (!found) return;
    e.preventDefault();
    found();
  };
}
