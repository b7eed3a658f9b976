// The store of a run: what its functions have written, by key.
import type { Run } from "../api.gen";
import { addressOf, callText, server } from "../api";
import { member, parseJson, writeJson, type JsonObject, type JsonValue } from "../lib/jsontext";
import { curl } from "../lib/shell";
import { href, project } from "../location";
import { Also, Copy } from "../parts/copy";
import { JsonTree } from "../parts/json";
import { Empty, Loading, Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { may } from "../session";

export function Store({ run }: { run: Run }) {
  return may("read") ? <Values run={run} /> : <p class="quiet">Not shown to keys of the role metadata.</p>;
}

// Values reads the store as text, so that no number is rounded.
function Values({ run }: { run: Run }) {
  const path = { id: run.id };
  const read = useResource(async (signal) => parseJson(await callText(project.value, "GET /v1/runs/{id}/store", { path, signal })),
    [run.id], { version: run.lastSeq });
  const trouble = read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />;
  if (!read.data.value) return trouble ?? <Loading what="the store" />;
  const { entries } = member(read.data.value, "data") as JsonObject;
  return (
    <>
      {trouble}
      {entries.length === 0 && <Empty title="The store of this run is empty"><p>What its functions write appears here, and stays when the run has ended.</p></Empty>}
      {entries.map((e) => <Value key={e.key} run={run} name={e.key} value={member(e.value, "value")!} seq={writeJson(member(e.value, "seq")!)} />)}
      <Also what="The store" cli={`stepwell runs store ${run.id}`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/store", { path }))} />
    </>
  );
}

function Value({ run, name, value, seq }: { run: Run; name: string; value: JsonValue; seq: string }) {
  return (
    <section aria-label={name}>
      <h2 class="gap">{name} <a class="button" href={`${href(["runs", run.id, "log"])}#e${seq}`}>event {seq}</a> <Copy text={writeJson(value)} what={`the value of ${name}`} /></h2>
      <JsonTree value={value} lines={12} />
    </section>
  );
}
