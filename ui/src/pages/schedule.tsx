// One schedule: what it starts and when, why it starts nothing, and what became of its ticks.
import { useSignal } from "@preact/signals";
import { addressOf, call, callText, server } from "../api";
import type { Schedule, Tick } from "../api.gen";
import { formatTerm } from "../lib/filter";
import { member, parseJson, writeJson, type JsonValue } from "../lib/jsontext";
import { shortId } from "../lib/path";
import { lookOfDecision, stateOfSchedule, timingOf } from "../lib/schedule";
import { curl, quote } from "../lib/shell";
import type { Look } from "../lib/status";
import { formatShort } from "../lib/zone";
import { useList } from "../list";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Glyph, Status } from "../parts/icon";
import { JsonTree } from "../parts/json";
import { Rows } from "../parts/list";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { may } from "../session";
import { zone } from "../settings";
import { useKeys } from "../shortcuts";
import { Backfill, DeleteSchedule, EndBackfill, Pause, PutSchedule, Resume, Trigger } from "./scheduleforms";

const pollEvery = 5000;

// Read is a schedule, and its input as it was written.
interface Read {
  schedule: Schedule;
  input: JsonValue | undefined;
}

async function readSchedule(name: string, signal: AbortSignal): Promise<Read> {
  const text = await callText(project.value, "GET /v1/schedules/{name}", { path: { name }, signal });
  return { schedule: JSON.parse(text) as Schedule, input: member(parseJson(text), "input") };
}

export function OneSchedule({ name }: { name: string }) {
  const read = useResource((signal) => readSchedule(name, signal), [project.value, name], pollEvery);
  const ticks = useList((cursor, signal) =>
    call(project.value, "GET /v1/schedules/{name}/ticks", { path: { name }, query: { limit: 50, cursor }, signal }),
  [project.value, name], (t) => `${t.kind} ${t.at}`);
  useKeys({ u: () => go(href(["schedules"])) });
  const refresh = () => {
    read.refresh();
    ticks.refresh();
  };
  if (read.problem.value?.status === 404) {
    return (
      <main class="page"><Empty title="There is no schedule with this name"><p class="mono">{name}</p>
        <a class="button" href={href(["schedules"])}>All schedules</a></Empty></main>
    );
  }
  const data = read.data.value;
  return (
    <main class="page schedule">
      <header class="run-head">
        <nav class="crumbs" aria-label="Path"><a href={href(["schedules"])}>Schedules</a></nav>
        <div class="run-title"><h1>{name}</h1>
          {data && <span class={`pill ${stateOfSchedule(data.schedule).look}`}><Status {...stateOfSchedule(data.schedule)} /></span>}
          {data && <Actions {...data} done={refresh} />}
        </div>
        <Commands cli={`stepwell schedules show ${quote(name)}`} curl={curl(server, "GET", addressOf("GET /v1/schedules/{name}", { path: { name } }))} />
      </header>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!data && !read.problem.value && <Loading what="the schedule" />}
      {data && <><Why schedule={data.schedule} /><Facts schedule={data.schedule} /><Next schedule={data.schedule} /><Input of={data} /></>}
      <h2 class="gap">Past ticks</h2>
      <Rows list={ticks} what="ticks" empty={<p class="quiet">No tick has been decided yet.</p>}>
        <table class="list ticks">
          <thead><tr><th>Tick</th><th>Decision</th><th>Run</th><th>Kind</th><th>Reason</th><th class="num">Decided</th></tr></thead>
          <tbody>{ticks.rows.map((t) => <Row key={`${t.kind} ${t.at}`} tick={t} />)}</tbody>
        </table>
      </Rows>
    </main>
  );
}

type Open = "" | "trigger" | "pause" | "backfill" | "edit" | "delete";

function Actions({ schedule: s, input, done }: Read & { done: () => void }) {
  const open = useSignal<Open>("");
  const show = (name: Open) => () => (open.value = name);
  const dialog = { name: s.name, done, close: show("") };
  return (
    <div class="actions">
      <Gated permission="write" act={show("trigger")}>Trigger …</Gated>
      <Gated permission="write" act={show("pause")}>{s.pausedAt ? "Resume …" : "Pause …"}</Gated>
      <Gated permission="write" act={show("backfill")}>{s.backfill ? "End the backfill …" : "Backfill …"}</Gated>
      <Gated permission="admin" act={show("edit")}>Edit …</Gated>
      <Gated permission="admin" act={show("delete")}>Delete …</Gated>
      {open.value === "trigger" && <Trigger {...dialog} />}
      {open.value === "pause" && (s.pausedAt ? <Resume {...dialog} /> : <Pause {...dialog} />)}
      {open.value === "backfill" && (s.backfill ? <EndBackfill {...dialog} /> : <Backfill {...dialog} overlap={s.overlap} />)}
      {open.value === "edit" && <PutSchedule of={s} input={input ? writeJson(input) : ""} done={done} close={show("")} />}
      {open.value === "delete" && <DeleteSchedule {...dialog} done={() => go(href(["schedules"]))} />}
    </div>
  );
}

// Why says why the schedule starts no run, in the words of the server.
function Why({ schedule: s }: { schedule: Schedule }) {
  const reasons = s.why ?? [];
  if (reasons.length === 0) return null;
  const looks = reasons.map((r): Look => (r.kind === "parked" || r.kind === "refused" ? "failed" : r.kind === "task_fails" ? "retrying" : "waiting"));
  return (
    <section class={`why ${looks.includes("failed") ? "blocked" : looks.includes("retrying") ? "retrying" : "quiet"}`} aria-label="Why it starts no run">
      <ul>{reasons.map((r, i) => (
        <li key={r.kind}><p class="lead"><Glyph look={looks[i]!} /><span><Sentence text={r.text} run={r.runId} />
          {r.since && <span class="when"> · since <Age at={r.since} /></span>}{r.at && <span class="when"> · again <Age at={r.at} /></span>}
          {r.messageId && <> <a href={href(["queue"])}>Queue</a></>}</span></p></li>
      ))}</ul>
    </section>
  );
}

// Sentence begins a sentence of the server with a capital, and links the run that it names.
function Sentence({ text, run }: { text: string; run: string | undefined }) {
  const [before = "", after = ""] = run ? text.split(run) : [text];
  return <>{before.charAt(0).toUpperCase() + before.slice(1)}{run && <a class="mono" href={href(["runs", run])} title={run}>{shortId(run)}</a>}{after}.</>;
}

function Facts({ schedule: s }: { schedule: Schedule }) {
  const facts: Array<[string, preact.ComponentChild]> = [
    ["When", <span class="mono">{timingOf(s)}</span>],
    ["Workflow", <a href={href(["workflows", s.workflow])}>{s.workflow}</a>],
    ["Runs", <a href={href(["runs"], { q: formatTerm({ attribute: "$schedule", value: s.name }) })}>of this schedule</a>],
    ["Last run", s.runId && <>{s.runStatus && <Status look={s.runStatus} word={s.runStatus} />} <a class="mono" href={href(["runs", s.runId])}>{shortId(s.runId)}</a></>],
    ["Deployment", s.deployment ?? "latest"],
    ["Overlap", s.overlap],
    ["Catch up", `${s.catchUp} within ${s.catchUpWindow}`],
    ["Jitter", s.jitter],
    ["Timeout", s.timeout],
    ["Attributes", s.attributes && Object.entries(s.attributes).map(([k, v]) => formatTerm({ attribute: k, value: v })).join(" ")],
    ["Paused", s.pausedAt && <><Age at={s.pausedAt} />{s.pauseNote && `: ${s.pauseNote}`}</>],
    ["Changed", <Age at={s.updatedAt} />],
  ];
  return (
    <dl class="facts">{facts.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
      {s.backfill && <div><dt>Backfill</dt><dd>decided up to <Clock at={s.backfill.at} /> of <Clock at={s.backfill.until} /></dd></div>}</dl>
  );
}

// Next are the next ticks: in the zone of the schedule, which its expression means, and in that of the reader.
function Next({ schedule: s }: { schedule: Schedule }) {
  if (!s.next?.length) return null;
  const own = s.every ? "UTC" : s.timeZone || "UTC";
  return (
    <>
      <h2 class="gap">Next ticks</h2>
      <ol class="next-ticks">{s.next.map((at) => (
        <li key={at}><time dateTime={at}>{formatShort(new Date(at), new Date(0), own)}</time> {own}
          {zone.value !== own && <span class="quiet"> · <Clock at={at} /> {zone.value}</span>}<span class="quiet"> · <Age at={at} /></span></li>
      ))}</ol>
    </>
  );
}

function Input({ of: { input } }: { of: Read }) {
  if (may("read") && !input) return null;
  return <><h2 class="gap">Input of its runs</h2>{input ? <JsonTree value={input} /> : <p class="quiet">Not shown to keys of the role metadata.</p>}</>;
}

function Row({ tick: t }: { tick: Tick }) {
  return (
    <tr>
      <td><Clock at={t.at} />{t.lastAt && <span class="quiet"> to <Clock at={t.lastAt} /></span>}</td>
      <td><Status look={lookOfDecision(t.decision)} word={t.decision} />{t.count > 1 && <span class="quiet"> {t.count.toLocaleString("en")} ticks</span>}</td>
      <td>{t.runId ? <a class="mono" href={href(["runs", t.runId])} title={t.runId}>{shortId(t.runId)}</a> : <span class="quiet">–</span>}</td>
      <td class="quiet">{t.kind}</td>
      <td class="detail">{t.reason ?? ""}</td>
      <td class="num" data-of="decided"><Age at={t.decidedAt} /></td>
    </tr>
  );
}
