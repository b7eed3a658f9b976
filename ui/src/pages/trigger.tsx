// One trigger: what it waits for, what it starts, and what became of the events that came.
import { useSignal } from "@preact/signals";
import { addressOf, base, call, callText, server } from "../api";
import type { Trigger, TriggerEvent } from "../api.gen";
import { attributesOf, formatTerm, runIdIn } from "../lib/filter";
import { member, parseJson, writeJson, type JsonValue } from "../lib/jsontext";
import { useText } from "../lib/limit";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { conditionOf, lookOfOutcome, ruleText, stateOfTrigger, waitsFor } from "../lib/trigger";
import { useList } from "../list";
import { go, href, project } from "../location";
import { Copy } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Facts, Input, One, type Fact } from "../parts/one";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { DeleteTrigger, PauseTrigger, PutTrigger, ResumeTrigger } from "./triggerforms";


// Read is a trigger, and the input of its runs as it was written.
interface Read {
  trigger: Trigger;
  input: JsonValue | undefined;
}

async function readTrigger(name: string, signal: AbortSignal): Promise<Read> {
  const text = await callText(project.value, "GET /v1/triggers/{name}", { path: { name }, signal });
  return { trigger: JSON.parse(text) as Trigger, input: member(member(parseJson(text), "start"), "input") };
}

export function OneTrigger({ name }: { name: string }) {
  const read = useResource((signal) => readTrigger(name, signal), [project.value, name], { on: ["settings"] });
  const history = useList((cursor, signal) =>
    call(project.value, "GET /v1/triggers/{name}/history", { path: { name }, query: { limit: 50, cursor }, signal }),
  [project.value, name], (e) => e.event, { on: ["settings"] });
  return (
    <One read={read} place="triggers" title="Triggers" what="trigger" name={name} state={(of) => stateOfTrigger(of.trigger)}
      actions={(of) => <Actions {...of} done={read.refresh} />}
      facts={(of) => <><Facts facts={factsOf(of.trigger)} /><Input of={of.input} none="The event." /></>}
      cli={`stepwell triggers show ${quote(name)}`} curl={curl(server, "GET", addressOf("GET /v1/triggers/{name}", { path: { name } }))}>
      <h2 class="gap">Events</h2>
      <Rows list={history} what="events" empty={<p class="quiet">No event has come yet.</p>}>
        <table class="list">
          <thead><tr><th>Event</th><th>Outcome</th><th>Run</th><th>Reason</th><th class="num">Decided</th></tr></thead>
          <tbody>{history.rows.map((e) => <Row key={e.event} event={e} />)}</tbody>
        </table>
      </Rows>
    </One>
  );
}

type Open = "" | "pause" | "edit" | "delete";

function Actions({ trigger: t, input, done }: Read & { done: () => void }) {
  const open = useSignal<Open>("");
  const show = (name: Open) => () => (open.value = name);
  const form = { name: t.name, done, close: show("") };
  return (
    <div class="actions">
      <Gated permission="write" act={show("pause")}>{t.pausedAt ? "Resume …" : "Pause …"}</Gated>
      <Gated permission="admin" act={show("edit")}>Edit …</Gated>
      <Gated permission="admin" act={show("delete")}>Delete …</Gated>
      {open.value === "pause" && (t.pausedAt ? <ResumeTrigger {...form} /> : <PauseTrigger {...form} />)}
      {open.value === "edit" && <PutTrigger of={t} input={input ? writeJson(input) : ""} done={done} close={show("")} />}
      {open.value === "delete" && <DeleteTrigger {...form} done={() => go(href(["triggers"]))} />}
    </div>
  );
}

function factsOf({ name, on, start: s, path, ...t }: Trigger): Fact[] {
  return [
    ["Waits for", waitsFor(on)],
    ["URL", path && <><span class="mono">{location.origin + base + path}</span> <Copy text={location.origin + base + path} what="the URL" /></>],
    ["Secret", on.webhook?.secret],
    ["Condition", conditionOf(on) && <span class="mono">{conditionOf(on)}</span>],
    ["Starts", <a href={href(["workflows", s.workflow])}>{s.workflow}</a>],
    ["Runs", <a href={href(["runs"], { q: formatTerm({ attribute: "$trigger", value: name }) })}>of this trigger</a>],
    ["Deployment", s.deployment ?? "latest"],
    ["Key", s.key && <><span class="mono">{s.key}</span>{s.onConflict === "join" ? ", joins a run that has it" : ", refused if a run has it"}</>],
    ["Once per", s.idempotencyKey && <span class="mono">{s.idempotencyKey}</span>],
    ["Attributes", attributesOf(s.attributes)],
    ["Limits", s.limits?.length && s.limits.map((u, i) => <>{i > 0 && ", "}<a href={href(["limits", u.name])}>{useText(u)}</a></>)],
    ["Priority", s.priority],
    ["Delay", s.delay],
    ["Debounce", s.debounce && ruleText(s.debounce)],
    ["Batch", s.batch && ruleText(s.batch)],
    ["Timeout", s.timeout],
    ["Paused", t.pausedAt && <><Age at={t.pausedAt} />{t.pauseNote && `: ${t.pauseNote}`}</>],
    ["Changed", <Age at={t.updatedAt} />],
  ];
}

// Row is an event, and what became of it. The event of a run that ended is the run.
function Row({ event: e }: { event: TriggerEvent }) {
  return (
    <tr>
      <td>{runIdIn(e.event) ? <RunLink id={e.event} /> : <span class="mono" title={e.event}>{shortId(e.event)}</span>}</td>
      <td><Status look={lookOfOutcome(e.decision)} word={e.decision} /></td>
      <td>{e.runId ? <RunLink id={e.runId} /> : <span class="quiet">–</span>}</td>
      <td class="detail">{e.reason ?? ""}</td>
      <td class="num" data-of="decided"><Age at={e.decidedAt} /></td>
    </tr>
  );
}

function RunLink({ id }: { id: string }) {
  return <a class="mono" href={href(["runs", id])} title={id}>{shortId(id)}</a>;
}
