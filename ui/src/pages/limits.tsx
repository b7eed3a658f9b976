// The limits of a project, and the policies that give them to the runs of workflows.
import { useSignal } from "@preact/signals";
import { addressOf, call, server } from "../api";
import type { Limit, Policy } from "../api.gen";
import { boundsOf, useText } from "../lib/limit";
import { curl } from "../lib/shell";
import type { State } from "../lib/status";
import { useList } from "../list";
import { go, href, page, project } from "../location";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Age } from "../parts/time";
import { OneLimit } from "./limit";
import { DeletePolicy, PutLimit, PutPolicy } from "./limitforms";

export function Limits() {
  const name = page.value.segments[1];
  return name === undefined ? <All /> : <OneLimit key={name} name={name} />;
}

// stateOfLimit tells whether a limit lets anything begin, and whether something waits.
export function stateOfLimit(l: Limit): State {
  if (l.paused) return { look: "cancelled", word: "paused" };
  return l.waiting ? { look: "waiting", word: "some wait" } : { look: "running", word: "active" };
}

// capped returns a count that ends at 10,000.
export function capped(n: number | undefined): string {
  return (n ?? 0).toLocaleString("en") + ((n ?? 0) >= 10_000 ? "+" : "");
}

function All() {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/limits", { query: { limit: 100, cursor }, signal }), [project.value], (l) => l.name, { on: ["settings", "queue", "runs"] });
  const adding = useSignal(false);
  return (
    <main class="page limits">
      <header class="page-head"><h1>Limits</h1>
        <Gated permission="admin" primary act={() => (adding.value = true)}>New limit …</Gated>
        <Commands cli="stepwell limits list" curl={curl(server, "GET", addressOf("GET /v1/limits", {}))} />
      </header>
      <Rows list={list} what="limits" empty={<Empty title="There are no limits"><p>A limit bounds how many runs are under way at once, or begin in a time: per customer, or in all.</p></Empty>}>
        <table class="list">
          <thead><tr><th>Limit</th><th>State</th><th>Bounds</th><th class="num">Held</th><th class="num">Waiting</th><th>If full</th><th class="num">Changed</th></tr></thead>
          <tbody>{list.rows.map((l) => (
            <tr key={l.name}>
              <td><a class="strong" href={href(["limits", l.name])}>{l.name}</a></td>
              <td><Status {...stateOfLimit(l)} /></td>
              <td>{boundsOf(l)}{l.fair && <span class="quiet"> · by turns</span>}</td>
              <td class="num" data-label="held">{(l.held ?? 0).toLocaleString("en")}</td>
              <td class="num" data-label="waiting">{capped(l.waiting)}</td>
              <td class="quiet">{l.onFull}</td>
              <td class="num" data-label="changed"><Age at={l.updatedAt} /></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
      <Policies />
      {adding.value && <PutLimit done={(name) => go(href(["limits", name]))} close={() => (adding.value = false)} />}
    </main>
  );
}

type Open = { kind: "put"; of?: Policy } | { kind: "delete"; of: Policy } | null;

function Policies() {
  const list = useList((cursor, signal) =>
    call(project.value, "GET /v1/policies", { query: { limit: 100, cursor }, signal }), [project.value], (p) => p.workflow, { on: ["settings"] });
  const open = useSignal<Open>(null);
  const dialog = { done: list.refresh, close: () => (open.value = null) };
  return (
    <section aria-labelledby="policies">
      <div class="bar gap"><h2 id="policies">Policies</h2><Gated permission="admin" primary act={() => (open.value = { kind: "put" })}>New policy …</Gated></div>
      <Rows list={list} what="policies" empty={<p class="quiet">A policy gives the runs of a workflow limits, whoever starts them.</p>}>
        <table class="list">
          <thead><tr><th>Workflow</th><th>Limits</th><th>Priority</th><th class="num">Changed</th><th><span class="hidden">Actions</span></th></tr></thead>
          <tbody>{list.rows.map((p) => (
            <tr key={p.workflow}>
              <td><a class="strong" href={href(["workflows", p.workflow])}>{p.workflow}</a></td>
              <td class="mono detail">{p.limits.map((u, i) => <>{i > 0 && ", "}<a href={href(["limits", u.name])}>{useText(u)}</a></>)}
                {Object.entries(p.steps ?? {}).map(([step, uses]) => <div key={step}>step {step}: {uses.map(useText).join(", ")}</div>)}</td>
              <td data-label="priority">{p.priority || "–"}</td>
              <td class="num" data-label="changed"><Age at={p.updatedAt} /></td>
              <td class="row-actions">
                <Gated permission="admin" act={() => (open.value = { kind: "put", of: p })}>Edit …</Gated>
                <Gated permission="admin" act={() => (open.value = { kind: "delete", of: p })}>Delete …</Gated></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
      {open.value?.kind === "put" && <PutPolicy {...dialog} {...(open.value.of && { of: open.value.of })} />}
      {open.value?.kind === "delete" && <DeletePolicy {...dialog} workflow={open.value.of.workflow} />}
    </section>
  );
}
