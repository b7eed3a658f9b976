// The triggers of a project, and the way to one of them.
import { useSignal } from "@preact/signals";
import { addressOf, call, server } from "../api";
import { curl } from "../lib/shell";
import { conditionOf, stateOfTrigger, waitsFor } from "../lib/trigger";
import { useList } from "../list";
import { go, href, page, project } from "../location";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Age } from "../parts/time";
import { OneTrigger } from "./trigger";
import { PutTrigger } from "./triggerforms";

export function Triggers() {
  const name = page.value.segments[1];
  return name === undefined ? <All /> : <OneTrigger key={name} name={name} />;
}

function All() {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/triggers", { query: { limit: 100, cursor }, signal }), [project.value], (t) => t.name, { on: ["settings"] });
  const adding = useSignal(false);
  return (
    <main class="page">
      <header class="page-head"><h1>Triggers</h1>
        <Gated permission="admin" primary act={() => (adding.value = true)}>New trigger …</Gated>
        <Commands cli="stepwell triggers list" curl={curl(server, "GET", addressOf("GET /v1/triggers", {}))} />
      </header>
      <Rows list={list} what="triggers" empty={<Empty title="There are no triggers"><p>A trigger starts a run when something happens: a signal, a request to a webhook, the end of another run.</p></Empty>}>
        <table class="list">
          <thead><tr><th>Trigger</th><th>State</th><th>Waits for</th><th>Condition</th><th>Starts</th><th class="num">Changed</th></tr></thead>
          <tbody>{list.rows.map((t) => (
            <tr key={t.name}>
              <td><a class="strong" href={href(["triggers", t.name])}>{t.name}</a></td>
              <td><Status {...stateOfTrigger(t)} />{t.pauseNote && <span class="quiet"> {t.pauseNote}</span>}</td>
              <td>{waitsFor(t.on)}</td>
              <td class="mono detail">{conditionOf(t.on)}</td>
              <td>{t.start.workflow}</td>
              <td class="num" data-label="changed"><Age at={t.updatedAt} /></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
      {adding.value && <PutTrigger done={(name) => go(href(["triggers", name]))} close={() => (adding.value = false)} />}
    </main>
  );
}
