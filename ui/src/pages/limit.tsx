// One limit: its settings, its keys, and who holds the slots of a key or waits for one.
import { useSignal } from "@preact/signals";
import { addressOf, call, server } from "../api";
import type { Limit, Permit } from "../api.gen";
import { boundsOf, keyName } from "../lib/limit";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { useList } from "../list";
import { go, href, project, search } from "../location";
import { Also } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Loading, Trouble } from "../parts/notice";
import { Facts, One, type Fact } from "../parts/one";
import { Age } from "../parts/time";
import { useResource, type Keep } from "../resource";
import { DeleteLimit, PauseLimit, PutLimit } from "./limitforms";
import { capped, stateOfLimit } from "./limits";

// What is under way changes with runs and with messages.
const keep: Keep = { on: ["settings", "queue", "runs"] };
const shown = 100; // who holds a slot, and who waits

export function OneLimit({ name }: { name: string }) {
  const path = { name };
  const read = useResource((signal) => call(project.value, "GET /v1/limits/{name}", { path, signal }), [project.value, name], keep);
  return (
    <One read={read} place="limits" title="Limits" what="limit" name={name} state={stateOfLimit}
      actions={(l) => <Actions limit={l} done={read.refresh} />} facts={(l) => <Facts facts={factsOf(l)} />}
      cli={`stepwell limits show ${quote(name)}`} curl={curl(server, "GET", addressOf("GET /v1/limits/{name}", { path }))}>
      <Keys name={name} />
    </One>
  );
}

type Open = "" | "pause" | "edit" | "delete";

function Actions({ limit, done }: { limit: Limit; done: () => void }) {
  const open = useSignal<Open>("");
  const show = (name: Open) => () => (open.value = name);
  return (
    <div class="actions">
      <Gated permission="admin" act={show("edit")}>Edit …</Gated>
      <Gated permission="admin" act={show("pause")}>{limit.paused ? "Resume …" : "Pause …"}</Gated>
      <Gated permission="admin" act={show("delete")}>Delete …</Gated>
      {open.value === "edit" && <PutLimit of={limit} done={done} close={show("")} />}
      {open.value === "pause" && <PauseLimit of={limit} done={done} close={show("")} />}
      {open.value === "delete" && <DeleteLimit of={limit} done={() => go(href(["limits"]))} close={show("")} />}
    </div>
  );
}

function factsOf(l: Limit): Fact[] {
  return [
    ["Bounds", boundsOf(l)], ["Sustained", l.rate && `${l.rate.sustained?.toLocaleString("en")} in ${l.rate.per}`],
    ["Order", l.fair ? "tenants take turns" : "first come, first served"], ["If full", l.onFull],
    ["Held", (l.held ?? 0).toLocaleString("en")], ["Waiting", capped(l.waiting)], ["Changed", <Age at={l.updatedAt} />],
  ];
}

// Keys are the keys that something holds or awaits, and the slots of one of them.
function Keys({ name }: { name: string }) {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/limits/{name}/keys", { path: { name }, query: { limit: 50, cursor }, signal }), [project.value, name], (k) => k.key, keep);
  const chosen = search.value.get("key") ?? list.rows[0]?.key;
  return (
    <>
      <h2 class="gap">Keys</h2>
      <Rows list={list} what="keys" empty={<p class="quiet">Nothing holds a slot, and nothing waits for one.</p>}>
        <table class="list">
          <thead><tr><th>Key</th><th class="num">Held</th><th class="num">Waiting</th><th class="num">The first waits</th></tr></thead>
          <tbody>{list.rows.map((k) => (
            <tr key={k.key}>
              <td><a class="strong" aria-current={k.key === chosen ? "true" : undefined} href={`${href(["limits", name])}?${new URLSearchParams({ key: k.key })}`}>{keyName(k.key)}</a></td>
              <td class="num" data-label="held">{k.held.toLocaleString("en")}</td><td class="num" data-label="waiting">{capped(k.waiting)}</td>
              <td class="num">{k.waitingSince ? <Age at={k.waitingSince} /> : "–"}</td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
      {chosen !== undefined && <Slots key={chosen} name={name} of={chosen} />}
    </>
  );
}

function Slots({ name, of }: { name: string; of: string }) {
  const request = { path: { name }, query: { key: of, limit: shown } };
  const read = useResource((signal) => call(project.value, "GET /v1/limits/{name}/slots", { ...request, signal }), [project.value, name, of], keep);
  const slots = read.data.value;
  return (
    <section aria-label={`Slots of ${keyName(of)}`}>
      <div class="bar gap"><h2>Slots: {keyName(of)}</h2>
        <Also what={`Slots of ${keyName(of)}`} cli={`stepwell limits slots ${quote(name)} ${quote(of)}`} curl={curl(server, "GET", addressOf("GET /v1/limits/{name}/slots", request))} /></div>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!slots && !read.problem.value && <Loading what="the slots" />}
      {slots && slots.held.length + slots.waiting.length === 0 && <p class="quiet">Nothing holds a slot of this key, and nothing waits for one.</p>}
      {slots && slots.held.length + slots.waiting.length > 0 && (
        <table class="list slots">
          <thead><tr><th>Slot</th><th>Run</th><th>Step</th><th class="num">Since</th><th class="num">Cost</th><th>Tenant</th></tr></thead>
          <tbody>
            {slots.held.map((p) => <Row key={p.runId + (p.stepId ?? "")} permit={p} slot={<Status look="running" word="holds" />} />)}
            {slots.waiting.map((p, i) => <Row key={p.runId + (p.stepId ?? "")} permit={p} slot={<Status look="waiting" word={`waits, no. ${i + 1}`} />} />)}
          </tbody>
        </table>
      )}
      {slots && Math.max(slots.held.length, slots.waiting.length) === shown && <p class="quiet">The first {shown} of each are shown.</p>}
    </section>
  );
}

function Row({ permit: p, slot }: { permit: Permit; slot: preact.ComponentChild }) {
  return (
    <tr>
      <td>{slot}</td>
      <td><a class="mono" href={href(["runs", p.runId])} title={p.runId}>{shortId(p.runId)}</a></td>
      <td>{p.stepId ? <a href={href(["runs", p.runId, "log"], { of: p.stepId })}>{p.stepId}</a> : <span class="quiet">the run</span>}</td>
      <td class="num"><Age at={p.since} />{p.notBefore && <span class="quiet"> · not before <Age at={p.notBefore} /></span>}</td>
      <td class="num" data-label="cost">{p.cost}</td><td>{p.tenant ?? ""}</td>
    </tr>
  );
}
