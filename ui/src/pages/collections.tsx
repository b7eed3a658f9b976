// Collections: runs that have not started because they collect starts, and one of them.
import { useSignal } from "@preact/signals";
import { addressOf, call, server } from "../api";
import type { Collection } from "../api.gen";
import { tick } from "../clock";
import { keyOf, ruleOf, stateOfCollection } from "../lib/collection";
import { attributesOf, formatTerm } from "../lib/filter";
import { formatBytes } from "../lib/jsontext";
import { keyName } from "../lib/limit";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { useList } from "../list";
import { go, href, page, project } from "../location";
import { Act, type Form } from "../parts/act";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Facts, One, type Fact } from "../parts/one";
import { Reasons } from "../parts/reasons";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";


export function Collections() {
  const id = page.value.segments[1];
  return id === undefined ? <All /> : <OneCollection key={id} id={id} />;
}

function All() {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/collections", { query: { limit: 100, cursor }, signal }), [project.value], (c) => c.id, { on: ["settings"] });
  const started = (kind: string, text: string) => <a href={href(["runs"], { q: formatTerm({ attribute: "$collected", value: kind }) })}>{text}</a>;
  return (
    <main class="page">
      <header class="page-head"><h1>Collections</h1>
        <Commands cli="stepwell collections list" curl={curl(server, "GET", addressOf("GET /v1/collections", {}))} />
      </header>
      <Rows list={list} what="collections" empty={<Empty title="Nothing is being collected"><p>A start with a debounce or a batch waits for others, which start one run together.</p></Empty>}>
        <table class="list">
          <thead><tr><th>Run</th><th>State</th><th>Workflow</th><th>Key</th><th>Rule</th><th class="num">Starts</th><th class="num">Due</th></tr></thead>
          <tbody>{list.rows.map((c) => (
            <tr key={c.id}>
              <td><a class="strong mono" href={href(["collections", c.id])} title={c.id}>{shortId(c.id)}</a></td>
              <td><Status {...stateOfCollection(c, tick.value)} /></td>
              <td>{c.workflow}</td>
              <td class="detail">{keyName(keyOf(c))}</td>
              <td class="quiet">{ruleOf(c)}</td>
              <td class="num" data-label="starts">{c.count.toLocaleString("en")}</td>
              <td class="num" data-label="due"><Clock at={c.dueAt} /> <span class="quiet"><Age at={c.dueAt} /></span></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
      <p class="quiet gap">Runs that have started: {started("debounce", "of debounces")}, {started("batch", "of batches")}.</p>
    </main>
  );
}

function OneCollection({ id }: { id: string }) {
  const path = { id };
  const read = useResource((signal) => call(project.value, "GET /v1/collections/{id}", { path, signal }), [project.value, id], { on: ["settings"] });
  return (
    <One read={read} place="collections" title="Collections" what="collection" name={id} state={(c) => stateOfCollection(c, tick.value)}
      actions={() => <Actions id={id} />} facts={(c) => <><Reasons of={c.why} label="Why it has not started" /><Facts facts={factsOf(c)} /></>}
      cli={`stepwell collections show ${quote(id)}`} curl={curl(server, "GET", addressOf("GET /v1/collections/{id}", { path }))}
      missing={<Empty title="Nothing is collected for this run"><p>It has started, or its collection was dropped.</p>
        <a class="button" href={href(["runs", id])}>The run</a> <a class="button" href={href(["collections"])}>All collections</a></Empty>} />
  );
}

function factsOf(c: Collection): Fact[] {
  return [
    ["Workflow", <a href={href(["workflows", c.workflow])}>{c.workflow}</a>], ["Rule", ruleOf(c)], ["Key", keyName(keyOf(c))],
    ["Starts", c.count.toLocaleString("en")], ["Input", formatBytes(c.bytes)], ["First", <Age at={c.firstAt} />], ["Last", <Age at={c.lastAt} />],
    ["Due", <><Clock at={c.dueAt} /> <span class="quiet"><Age at={c.dueAt} /></span></>],
    ["Key of the run", c.key], ["Deployment", c.deployment ?? "latest"], ["Timeout", c.timeout], ["Attributes", attributesOf(c.attributes)],
  ];
}

function Actions({ id }: { id: string }) {
  const open = useSignal<"" | "flush" | "drop">("");
  const close = () => (open.value = "");
  return (
    <div class="actions">
      <Gated permission="write" act={() => (open.value = "flush")}>Flush …</Gated>
      <Gated permission="write" act={() => (open.value = "drop")}>Drop …</Gated>
      {open.value === "flush" && <Flush id={id} done={() => go(href(["runs", id]))} close={close} />}
      {open.value === "drop" && <Drop id={id} done={() => go(href(["collections"]))} close={close} />}
    </div>
  );
}

function Flush({ id, ...form }: Form & { id: string }) {
  return (
    <Act {...form} operation="POST /v1/collections/{id}/flush" request={{ path: { id } }} title="Start the run now" button="Start it"
      cli={`stepwell collections flush ${quote(id)}`}>
      <p>The run starts with what was collected so far. Later starts open another collection.</p>
    </Act>
  );
}

function Drop({ id, ...form }: Form & { id: string }) {
  return (
    <Act {...form} operation="DELETE /v1/collections/{id}" request={{ path: { id } }} title="Drop the collection" button="Drop it" danger
      cli={`stepwell collections drop ${quote(id)}`}>
      <p>What was collected is deleted, and the run will never start. Those who wait for it are told that there is none. This cannot be undone.</p>
    </Act>
  );
}
