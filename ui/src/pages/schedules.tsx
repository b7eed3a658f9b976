// The schedules of a project, and the way to one of them.
import { useSignal } from "@preact/signals";
import { addressOf, call, server } from "../api";
import type { Schedule } from "../api.gen";
import { shortId } from "../lib/path";
import { stateOfSchedule, timingOf } from "../lib/schedule";
import { curl } from "../lib/shell";
import { useList } from "../list";
import { go, href, page, project } from "../location";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { OneSchedule } from "./schedule";
import { Pause, PutSchedule, Resume } from "./scheduleforms";

export function Schedules() {
  const name = page.value.segments[1];
  return name === undefined ? <All /> : <OneSchedule key={name} name={name} />;
}

function All() {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/schedules", { query: { limit: 100, cursor }, signal }), [project.value], (s) => s.name, { on: ["settings"] });
  const adding = useSignal(false);
  const pausing = useSignal<Schedule | null>(null);
  const Dialog = pausing.value?.pausedAt ? Resume : Pause;
  return (
    <main class="page">
      <header class="page-head"><h1>Schedules</h1>
        <Gated permission="admin" primary act={() => (adding.value = true)}>New schedule …</Gated>
        <Commands cli="stepwell schedules list" curl={curl(server, "GET", addressOf("GET /v1/schedules", {}))} />
      </header>
      <Rows list={list} what="schedules" empty={<Empty title="There are no schedules"><p>A schedule starts runs of a workflow at set times: every night, every 15 minutes.</p></Empty>}>
        <table class="list schedules">
          <thead><tr><th>Schedule</th><th>State</th><th>When</th><th>Workflow</th><th class="num">Next tick</th><th>Last run</th><th><span class="hidden">Actions</span></th></tr></thead>
          <tbody>{list.rows.map((s) => <Row key={s.name} schedule={s} pause={() => (pausing.value = s)} />)}</tbody>
        </table>
      </Rows>
      {adding.value && <PutSchedule done={(name) => go(href(["schedules", name]))} close={() => (adding.value = false)} />}
      {pausing.value && <Dialog name={pausing.value.name} done={list.refresh} close={() => (pausing.value = null)} />}
    </main>
  );
}

function Row({ schedule: s, pause }: { schedule: Schedule; pause: () => void }) {
  return (
    <tr>
      <td><a class="strong" href={href(["schedules", s.name])}>{s.name}</a></td>
      <td><Status {...stateOfSchedule(s)} />{s.pauseNote && <span class="quiet"> {s.pauseNote}</span>}</td>
      <td class="mono">{timingOf(s)}</td>
      <td>{s.workflow}</td>
      <td class="num" data-label="next">{s.nextAt ? <><Clock at={s.nextAt} /> <span class="quiet"><Age at={s.nextAt} /></span></> : "–"}</td>
      <td>{s.runId ? <LastRun schedule={s} /> : <span class="quiet">none yet</span>}</td>
      <td class="helps"><Gated permission="write" act={pause} label={`${s.pausedAt ? "Resume" : "Pause"} ${s.name} …`}>{s.pausedAt ? "Resume …" : "Pause …"}</Gated></td>
    </tr>
  );
}

// LastRun is a link to the run that the schedule has started last, and its status while it is kept.
function LastRun({ schedule: s }: { schedule: Schedule }) {
  return <>{s.runStatus && <Status look={s.runStatus} word={s.runStatus} />} <a class="mono" href={href(["runs", s.runId ?? ""])} title={s.runId}>{shortId(s.runId ?? "")}</a></>;
}
