// The log of a run. Positions are dense, so any part of it is read by itself: it is never loaded whole.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Event, EventType, Run } from "../api.gen";
import { call } from "../api";
import { formatDuration } from "../lib/duration";
import { isSdkId, titleOf, Titles } from "../lib/names";
import { pagesOf, Recent, type Range } from "../lib/pages";
import { isTemporary, type Problem } from "../lib/problem";
import { lookOfEvent } from "../lib/status";
import { partsOf } from "../lib/zone";
import { useLive } from "../live";
import { go, hash, href, project, search } from "../location";
import { Glyph } from "../parts/icon";
import { Empty, Trouble } from "../parts/notice";
import { Virtual } from "../parts/virtual";
import { zone } from "../settings";
import { EventPanel } from "./event";

const pageSize = 200;
const keptPages = 50;
const rowHeight = 26;
const triesAgainAfter = 2000;

const types: EventType[] = [
  "run_created", "run_started", "run_completed", "run_failed", "run_cancelled", "cancel_requested", "attr_set", "store_set",
  "step_created", "step_started", "step_completed", "step_failed", "step_retrying", "hook_created", "hook_received",
  "hook_disposed", "hook_conflict", "wait_created", "wait_completed", "wait_cancelled",
];

export function Log({ run }: { run: Run }) {
  const type = search.value.get("type") ?? "";
  const of = search.value.get("of") ?? "";
  const selected = /^e(\d+)$/.exec(hash.value)?.[1];
  const seq = selected ? Number(selected) : 0;
  const set = (q: { type?: string; of?: string }) =>
    go(href(["runs", run.id, "log"], { type: q.type ?? type, of: q.of ?? of }), "replace");
  const select = (n: number) => {
    const to = href(["runs", run.id, "log"], { type, of });
    go(n > 0 ? `${to}#e${n}` : to, "replace");
  };
  const jump = (e: KeyboardEvent) => {
    const n = Number((e.currentTarget as HTMLInputElement).value);
    if (e.key === "Enter" && n >= 1) select(Math.min(n, run.lastSeq));
  };
  const filtered = type !== "" || of !== "";
  return (
    <div class="log">
      <div class="bar">
        <select aria-label="Event type" value={type} onChange={(e) => set({ type: e.currentTarget.value })}>
          <option value="">all events</option>{types.map((t) => <option value={t}>{t}</option>)}
        </select>
        <input aria-label="Step, hook or wait" placeholder="step, hook or wait" value={of} onChange={(e) => set({ of: e.currentTarget.value.trim() })} />
        <label class="jump">Event <input inputMode="numeric" size={7} aria-label="Jump to event" placeholder={String(run.lastSeq)} onKeyDown={jump} /></label>
        {filtered && <button type="button" onClick={() => set({ type: "", of: "" })}>Clear</button>}
      </div>
      <div class={`split ${seq > 0 ? "open" : ""}`}>
        {filtered ? <Filtered key={`${type} ${of}`} run={run} type={type} of={of} seq={seq} select={select} /> : <Windowed run={run} seq={seq} select={select} />}
        {seq > 0 && <EventPanel key={seq} run={run} seq={seq} close={() => select(0)} />}
      </div>
    </div>
  );
}

interface PartProps {
  run: Run;
  seq: number;
  select: (seq: number) => void;
}

// Windowed shows the whole log, and reads the pages of it that are on the screen.
function Windowed({ run, seq, select }: PartProps) {
  const pages = useRef(new Recent<Event[]>(keptPages));
  const pending = useRef(new Set<number>());
  const control = useRef(new AbortController());
  const titles = useRef(new Titles());
  const version = useSignal(0);
  const range = useSignal<Range>({ first: 0, end: 0 });
  const problem = useSignal<Problem | null>(null);
  const length = useRef(0);
  length.current = run.lastSeq;
  useEffect(() => () => control.current.abort(), []);
  const read = async (page: number) => {
    pending.current.add(page);
    const before = pages.current.get(page)?.length ?? 0;
    let found = 0;
    try {
      const { data } = await call(project.value, "GET /v1/runs/{id}/events", {
        path: { id: run.id }, query: { after: page * pageSize, limit: pageSize, payloads: false }, signal: control.current.signal,
      });
      found = data.length;
      titles.current.learn(data);
      if (found > (pages.current.get(page)?.length ?? 0)) pages.current.put(page, data); // else what was told meanwhile is newer
      problem.value = null;
      version.value++;
    } catch (err) {
      if (control.current.signal.aborted) return;
      problem.value = err as Problem;
      if (isTemporary(problem.value)) window.setTimeout(need, triesAgainAfter);
    } finally {
      pending.current.delete(page);
    }
    if (found > before) need(); // the log may have grown meanwhile
  };
  const need = () => {
    if (control.current.signal.aborted) return;
    for (const page of pagesOf(range.value, pageSize)) {
      const want = Math.min(pageSize, length.current - page * pageSize);
      if ((pages.current.get(page)?.length ?? 0) < want && !pending.current.has(page)) void read(page);
    }
  };
  useLive("", () => ({}), (m) => {
    if (m.kind !== "log") return;
    titles.current.learn(m.data.events ?? []);
    for (const e of m.data.events ?? []) {
      const i = e.seq - 1;
      const page = pages.current.get(Math.floor(i / pageSize)) ?? [];
      if (page.length === i % pageSize) pages.current.put(Math.floor(i / pageSize), [...page, e]);
    }
    version.value++;
  });
  useEffect(need, [range.value.first, range.value.end, run.lastSeq]);
  const eventAt = (i: number) => pages.current.get(Math.floor(i / pageSize))?.[i % pageSize];
  return (
    <div class="log-list">
      {problem.value && <Trouble problem={problem.value} retry={need} />}
      <Virtual count={run.lastSeq} rowHeight={rowHeight} label={`Log of ${run.lastSeq} events`} class="events" target={seq - 1} follow
        onRange={(r) => (range.value = r)} row={(i) => <Row key={i} seq={i + 1} event={version.value >= 0 ? eventAt(i) : undefined}
          before={eventAt(i - 1)} titles={titles.current} selected={i + 1 === seq} select={select} />} />
    </div>
  );
}

// Filtered shows the events of a type, or of a step, hook or wait, page by page.
function Filtered({ run, type, of, seq, select }: PartProps & { type: string; of: string }) {
  const events = useSignal<Event[]>([]);
  const cursor: Signal<string | undefined> = useSignal<string | undefined>(undefined);
  const state = useSignal<"reading" | "done">("reading");
  const problem = useSignal<Problem | null>(null);
  const titles = useRef(new Titles());
  const upTo = useRef(0); // the length of the log at the last reading
  const control = useRef(new AbortController());
  // read reads the next page: of what is left, or of what is new since the last reading.
  const read = async () => {
    const { signal } = control.current;
    state.value = "reading";
    const after = cursor.value ? undefined : upTo.current;
    const length = run.lastSeq;
    try {
      const answer = await call(project.value, "GET /v1/runs/{id}/events", {
        path: { id: run.id }, signal,
        query: {
          type: type ? [type as EventType] : undefined, correlationId: of || undefined, cursor: cursor.value, after,
          limit: pageSize, payloads: false,
        },
      });
      const known = events.value.at(-1)?.seq ?? 0;
      answer.data = answer.data.filter((e) => e.seq > known);
      upTo.current = length;
      titles.current.learn(answer.data);
      events.value = [...events.value, ...answer.data];
      cursor.value = answer.cursor;
      problem.value = null;
    } catch (err) {
      if (signal.aborted) return;
      problem.value = err as Problem;
    }
    state.value = "done";
  };
  useEffect(() => {
    void read();
    return () => control.current.abort();
  }, []);
  const failed = problem.value !== null; // then somebody asks for it again
  useEffect(() => {
    if (state.value === "done" && !failed && !cursor.value && run.lastSeq > upTo.current) void read();
  }, [run.lastSeq, state.value, failed]);
  const list = events.value;
  return (
    <div class="log-list">
      {problem.value && <Trouble problem={problem.value} retry={() => void read()} />}
      {state.value === "done" && list.length === 0 && !problem.value && <Empty title="No event matches" />}
      <Virtual count={list.length} rowHeight={rowHeight} label="Events that match" class="events"
        row={(i) => <Row key={i} seq={list[i]!.seq} event={list[i]} before={list[i - 1]} titles={titles.current} selected={list[i]!.seq === seq} select={select} />} />
      {cursor.value && <p class="more"><button type="button" onClick={() => void read()} disabled={state.value === "reading"}>More events</button></p>}
    </div>
  );
}

interface RowProps {
  seq: number;
  event?: Event;
  before?: Event;
  titles: Titles;
  selected: boolean;
  select: (seq: number) => void;
}

function Row({ seq, event, before, titles, selected, select }: RowProps) {
  if (!event) return <div class="event waiting-row"><span class="num quiet">{seq.toLocaleString("en")}</span></div>;
  const at = new Date(event.createdAt);
  const p = partsOf(at, zone.value);
  const since = before ? at.getTime() - Date.parse(before.createdAt) : 0;
  return (
    <button type="button" class="event" aria-pressed={selected} onClick={() => select(selected ? 0 : seq)}>
      <span class="num quiet">{seq.toLocaleString("en")}</span>
      <time dateTime={event.createdAt} title={`${p.date} ${zone.value}`}>{p.time}<span class="quiet">.{p.millis}</span></time>
      <span class="num quiet">{before && since > 0 ? `+${formatDuration(since)}` : ""}</span>
      <span class="type"><Glyph look={lookOfEvent(event.type)} />{event.type}</span>
      <span class="of" title={event.correlationId}>{event.correlationId && titles.of(event.correlationId)}</span>
      <span class="note quiet">{noteOf(event)}</span>
    </button>
  );
}

// noteOf returns what the server knows about an event beside its type.
function noteOf(e: Event): string {
  const d = e.data as Record<string, unknown>;
  const text = (name: string) => (typeof d[name] === "string" || typeof d[name] === "number" ? String(d[name]) : "");
  const attributes = d["attributes"];
  const changes = Array.isArray(d["changes"]) ? d["changes"] as Array<{ key?: string; value?: unknown }> : [];
  const parts = [
    titleOf(text("workflowName")), isSdkId(e.correlationId ?? "") || text("stepName") === e.correlationId ? "" : text("stepName"), text("errorCode"), text("reason"), text("signal"),
    text("resumeAt") && `until ${text("resumeAt")}`, text("via") && `via ${text("via")}`,
    attributes && typeof attributes === "object" ? Object.entries(attributes).map(([k, v]) => `${k}=${String(v)}`).join(" ") : "",
    changes.map((c) => `${c.key} = ${c.value ?? "removed"}`).join(", "),
  ];
  return parts.filter(Boolean).join(" · ");
}
