// One event beside the log.
import { useSignal } from "@preact/signals";
import type { Run } from "../api.gen";
import { addressOf, callText, server } from "../api";
import { member, parseJson, sizeOf, writeJson } from "../lib/jsontext";
import { curl } from "../lib/shell";
import { href, project } from "../location";
import { Gated } from "../parts/gated";
import { Also, Copy } from "../parts/copy";
import { JsonTree } from "../parts/json";
import { Loading, Trouble } from "../parts/notice";
import { Payload } from "../parts/payload";
import { Exact } from "../parts/time";
import { useResource } from "../resource";
import { Fork } from "./actions";

const ends = ["run_completed", "run_failed", "run_cancelled", "cancel_requested"]; // from which no run goes on

export function EventPanel({ run, seq, close }: { run: Run; seq: number; close: () => void }) {
  const forking = useSignal(false);
  const path = { id: run.id };
  const query = { after: seq - 1, limit: 1, payloads: false };
  const read = useResource(async (signal) => {
    const page = parseJson(await callText(project.value, "GET /v1/runs/{id}/events", { path, query, signal }));
    const data = member(page, "data");
    return data?.kind === "array" ? data.items[0] ?? null : null;
  }, [run.id, seq]);
  const event = read.data.value ?? undefined;
  const text = (name: string) => {
    const v = member(event, name);
    return v?.kind === "string" ? (JSON.parse(v.text) as string) : "";
  };
  const data = member(event, "data");
  const of = text("correlationId");
  return (
    <aside class="panel" aria-label={`Event ${seq}`}>
      <header><h2>Event {seq.toLocaleString("en")}</h2>
        <Copy text={`${location.origin}${href(["runs", run.id, "log"])}#e${seq}`} label="Copy link" what="a link to this event" />
        {event && <Copy text={() => writeJson(event)} label="Copy JSON" what="the event as JSON" />}
        <button type="button" class="icon" aria-label="Close" onClick={close}>×</button></header>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!event && !read.problem.value && <Loading what="the event" />}
      {event && <>
        <dl class="facts"><div><dt>type</dt><dd>{text("type")}</dd></div>
          <div><dt>at</dt><dd><Exact at={text("createdAt")} /></dd></div>
          {of && <div><dt>of</dt><dd><a href={href(["runs", run.id, "log"], { of })}>{of}</a></dd></div>}</dl>
        {data && sizeOf(data) > 0 && <><h3>Recorded</h3><JsonTree value={data} /></>}
        <h3>Payload</h3>
        <Payload project={project.value} run={run.id} seq={seq} />
        {run.driver === "server" && !ends.includes(text("type")) && <p><Gated permission="write" act={() => (forking.value = true)}>Go on from here …</Gated></p>}
        {forking.value && <Fork run={run} at={seq} close={() => (forking.value = false)} />}
        <Also what={`Event ${seq.toLocaleString("en")}`} cli={`stepwell runs payload ${run.id} ${seq}`}
          curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/events/{seq}", { path: { id: run.id, seq } }))} />
      </>}
    </aside>
  );
}
