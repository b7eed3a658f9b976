// One schedule: what it starts and when, why it starts nothing, and what became of its ticks.
import { useSignal } from "@preact/signals";
import { addressOf, call, callText, server } from "../api";
import type { Schedule, Tick } from "../api.gen";
import { attributesOf, formatTerm } from "../lib/filter";
import { member, parseJson, writeJson, type JsonValue } from "../lib/jsontext";
import { shortId } from "../lib/path";
import { lookOfDecision, stateOfSchedule, timingOf } from "../lib/schedule";
import { curl, quote } from "../lib/shell";
import { formatMoments } from "../lib/zone";
import { useList } from "../list";
import { go, href, project } from "../location";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Facts, Input, One, type Fact } from "../parts/one";
import { Reasons } from "../parts/reasons";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { zone } from "../settings";
import { Starts } from "./starts";
import { Backfill, DeleteSchedule, EndBackfill, Pause, PutSchedule, Resume, Trigger } from "./scheduleforms";


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
  const read = useResource((signal) => readSchedule(name, signal), [project.value, name], { on: ["settings"] });
  const ticks = useList((cursor, signal) =>
    call(project.value, "GET /v1/schedules/{name}/ticks", { path: { name }, query: { limit: 50, cursor }, signal }),
  [project.value, name], (t) => `${t.kind} ${t.at}`, { on: ["settings", "runs"] });
  const at = formatMoments(ticks.rows.map((t) => t.at), zone.value);
  const refresh = () => {
    read.refresh();
    ticks.refresh();
  };
  return (
    <One read={read} place="schedules" title="Schedules" what="schedule" name={name} state={(of) => stateOfSchedule(of.schedule)}
      actions={(of) => <Actions {...of} done={refresh} />}
      facts={(of) => <><Reasons of={of.schedule.why} label="Why it starts no run" /><Facts facts={factsOf(of.schedule)} /><Next schedule={of.schedule} /><Input of={of.input} /></>}
      cli={`stepwell schedules show ${quote(name)}`} curl={curl(server, "GET", addressOf("GET /v1/schedules/{name}", { path: { name } }))}>
      {read.data.value && <Starts workflow={read.data.value.schedule.workflow} />}
      <h2 class="gap">Past ticks</h2>
      <Rows list={ticks} what="ticks" empty={<p class="quiet">No tick has been decided yet.</p>}>
        <table class="list ticks">
          <thead><tr><th>Tick</th><th>Decision</th><th>Run</th><th>Kind</th><th>Reason</th><th class="num">Decided</th></tr></thead>
          <tbody>{ticks.rows.map((t, i) => <Row key={`${t.kind} ${t.at}`} tick={t} at={at[i]!} />)}</tbody>
        </table>
      </Rows>
    </One>
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

function factsOf(s: Schedule): Fact[] {
  return [
    ["When", <span class="mono">{timingOf(s)}</span>],
    ["Workflow", <a href={href(["workflows", s.workflow])}>{s.workflow}</a>],
    ["Runs", <a href={href(["runs"], { q: formatTerm({ attribute: "$schedule", value: s.name }) })}>of this schedule</a>],
    ["Last run", s.runId && <>{s.runStatus && <Status look={s.runStatus} word={s.runStatus} />} <a class="mono" href={href(["runs", s.runId])}>{shortId(s.runId)}</a></>],
    ["Deployment", s.deployment ?? "latest"],
    ["From", s.from && <Clock at={s.from} />],
    ["Until", s.until && <Clock at={s.until} />],
    ["Overlap", s.overlap],
    ["Catch up", `${s.catchUp} within ${s.catchUpWindow}`],
    ["Jitter", s.jitter],
    ["Timeout", s.timeout],
    ["Attributes", attributesOf(s.attributes)],
    ["Paused", s.pausedAt && <><Age at={s.pausedAt} />{s.pauseNote && `: ${s.pauseNote}`}</>],
    ["Changed", <Age at={s.updatedAt} />],
    ["Backfill", s.backfill && <>decided up to <Clock at={s.backfill.at} /> of <Clock at={s.backfill.until} /></>],
  ];
}

// Next are the next ticks: in the zone of the schedule, which its expression means, and in that of the reader.
function Next({ schedule: s }: { schedule: Schedule }) {
  if (!s.next?.length) return null;
  const own = s.every ? "UTC" : s.timeZone || "UTC";
  const [there, here] = [formatMoments(s.next, own), formatMoments(s.next, zone.value)];
  return (
    <>
      <h2 class="gap">Next ticks</h2>
      <ol class="next-ticks">{s.next.map((at, i) => (
        <li key={at}><time dateTime={at}>{there[i]}</time> {own}
          {zone.value !== own && <span class="quiet"> · <Clock at={at} shown={here[i]!} /> {zone.value}</span>}<span class="quiet"> · <Age at={at} /></span></li>
      ))}</ol>
    </>
  );
}

function Row({ tick: t, at }: { tick: Tick; at: string }) {
  return (
    <tr>
      <td><Clock at={t.at} shown={at} />{t.lastAt && <span class="quiet"> to <Clock at={t.lastAt} /></span>}</td>
      <td><Status look={lookOfDecision(t.decision)} word={t.decision} />{t.count > 1 && <span class="quiet"> {t.count.toLocaleString("en")} ticks</span>}</td>
      <td>{t.runId ? <a class="mono" href={href(["runs", t.runId])} title={t.runId}>{shortId(t.runId)}</a> : <span class="quiet">–</span>}</td>
      <td class="quiet">{t.kind}</td>
      <td class="detail">{t.reason ?? ""}</td>
      <td class="num" data-of="decided"><Age at={t.decidedAt} /></td>
    </tr>
  );
}
