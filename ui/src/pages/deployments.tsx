// The deployments: where the functions of the workflows are, and whether they answer.
import { useSignal } from "@preact/signals";
import type { Deployment, Pause } from "../api.gen";
import { addressOf, call, server } from "../api";
import { formatTerm } from "../lib/filter";
import { curl, quote } from "../lib/shell";
import type { State } from "../lib/status";
import { go, href, project, search } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { may, needs } from "../session";
import { OpenPause, PausedSince, PauseForm, usePauses } from "./pauses";

type Open = { kind: "add" } | { kind: "move" | "forget" | "pause"; of: Deployment } | null;

export function Deployments() {
  const list = useResource((signal) => call(project.value, "GET /v1/deployments", { signal }), [project.value], { on: ["settings", "queue", "runs"] });
  const added = search.value.get("add"); // the ID of a deployment that a link wants to be added
  const open = useSignal<Open>(added === null ? null : { kind: "add" });
  const pauses = usePauses();
  const rows = list.data.value?.data ?? [];
  const close = () => {
    open.value = null;
    if (added !== null) go(href(["deployments"]), "replace");
  };
  const dialog = { done: list.refresh, close };
  return (
    <main class="page">
      <header class="page-head"><h1>Deployments</h1>
        <Gated permission="admin" primary act={() => (open.value = { kind: "add" })}>New deployment …</Gated>
        {may("admin") && <Signing />}
        <Commands cli="stepwell deployments list" curl={curl(server, "GET", addressOf("GET /v1/deployments", {}))} />
      </header>
      {list.problem.value && <Trouble problem={list.problem.value} retry={list.refresh} />}
      {list.data.value === null && !list.problem.value && <Loading what="deployments" />}
      {list.data.value && rows.length === 0 && <Empty title="There are no deployments"><p>A deployment is where the functions of workflows are: any HTTP endpoint.</p></Empty>}
      {rows.length > 0 && (
        <table class="list deployments">
          <thead><tr><th>Deployment</th><th>State</th><th>Workflows</th><th class="num">Open runs</th><th class="num">Calls waiting</th><th>Last answer</th><th><span class="hidden">Actions</span></th></tr></thead>
          <tbody>{rows.map((d) => <Row key={d.id} deployment={d} pause={pauses.of("deployment", d.id)} open={(o) => (open.value = o)} />)}</tbody>
        </table>
      )}
      {open.value?.kind === "add" && <Add {...dialog} name={added ?? ""} />}
      {open.value?.kind === "move" && <Move of={open.value.of} {...dialog} />}
      {open.value?.kind === "pause" && <PauseForm kind="deployment" name={open.value.of.id} pause={pauses.of("deployment", open.value.of.id)} done={pauses.refresh} close={close} />}
      {open.value?.kind === "forget" && <Forget of={open.value.of} {...dialog} />}
    </main>
  );
}

// Signing tells whether calls are signed.
function Signing() {
  const keys = useResource((signal) => call(project.value, "GET /v1/signing-keys", { signal }), [project.value]);
  const n = keys.data.value?.data.length;
  if (n === undefined) return null;
  return <span class="quiet">{n === 0 ? "Calls are not signed." : `Calls are signed with ${n === 1 ? "one key" : `${n} keys`}.`} <a href={href(["access"])}>Signing keys</a></span>;
}

// fetches is the URL of a deployment whose app asks for its deliveries.
const fetches = "pull:";

// flowOf returns the flow and the version that a deployment is, or null: the server executes its runs and calls nothing.
function flowOf(d: Deployment): { name: string; version: string } | null {
  const [name, version] = d.url.startsWith("flow:") ? d.url.slice("flow:".length).split("@") : [];
  return name && version ? { name, version } : null;
}

function stateOf(d: Deployment): State {
  if (flowOf(d)) return { look: "completed", word: "flow" };
  if (d.unreachableSince) return { look: "failed", word: "unreachable" };
  if (d.health?.status === "unhealthy") return { look: "failed", word: "unhealthy" };
  if (d.url === fetches) return { look: d.answeredAt ? "completed" : "pending", word: "pulled" };
  if (d.answeredAt) return { look: "completed", word: "answers" };
  return { look: "pending", word: "not called yet" };
}

interface RowProps {
  deployment: Deployment;
  pause: Pause | null | undefined;
  open: (o: Open) => void;
}

function Row({ deployment: d, pause, open }: RowProps) {
  const button = (kind: "move" | "forget", text: string) => (
    <button type="button" disabled={!may("admin")} title={may("admin") ? "" : needs("admin")} aria-label={`${text} ${d.id}`}
      onClick={() => open({ kind, of: d })}>{text}</button>
  );
  const runs = capped(d.openRuns, 10_000);
  const flow = flowOf(d);
  return (
    <tr>
      <td><span class="strong">{d.id}</span>{d.build && <span class="quiet"> build {d.build}</span>}{flow
        ? <div class="quiet">flow {flow.name}, version {flow.version}</div>
        : d.url === fetches ? <div class="quiet">pulled{d.answeredAt && <>, last poll <Age at={d.answeredAt} /></>}</div>
        : <div class="mono quiet url">{d.url}</div>}</td>
      <td class="reach"><Status {...stateOf(d)} />
        {pause && <div><PausedSince of={pause} /></div>}
        {d.unreachableSince && <> <span class="quiet">since</span> <Clock at={d.unreachableSince} /> <span class="quiet"><Age at={d.unreachableSince} /></span></>}
        {d.health?.lastError && <div class="quiet small">health: <span class="mono">{d.health.lastError}</span></div>}
        {d.lastError && d.failedAt && <div class="quiet small"><Age at={d.failedAt} />: <span class="mono">{d.lastError}</span></div>}</td>
      <td>{d.workflows?.join(", ") ?? <span class="quiet">{d.stepsOnly ? "none, steps only" : "any"}</span>}</td>
      <td class="num"><a href={href(["runs"], { q: formatTerm({ field: "deployment", value: d.id }) })}>{runs}</a></td>
      <td class="num">{d.waitingMessages > 0 ? <a href={href(["queue", "retrying"], { deployment: d.id })}>{capped(d.waitingMessages, 1000)}</a> : 0}</td>
      <td>{d.answeredAt ? <Age at={d.answeredAt} /> : <span class="quiet">–</span>}</td>
      <td class="row-actions"><OpenPause pause={pause} name={d.id} act={() => open({ kind: "pause", of: d })} />{!flow && <>{button("move", "Move …")}{button("forget", "Forget …")}</>}</td>
    </tr>
  );
}

// capped returns a number that was counted up to a limit.
function capped(n: number, limit: number): string {
  return n.toLocaleString("en") + (n >= limit ? "+" : "");
}

interface DialogProps {
  done: () => void;
  close: () => void;
}

function Add({ name, done, close }: DialogProps & { name: string }) {
  const id = useSignal(name);
  const url = useSignal("");
  const workflows = useSignal("");
  const names = workflows.value.split(/[\s,]+/).filter(Boolean);
  const path = { id: id.value || "ID" };
  const body = { url: url.value, ...(names.length > 0 && { workflows: names }) };
  const act = async () => {
    await call(project.value, "PUT /v1/deployments/{id}", { path, body });
    done();
  };
  return (
    <Dialog title="New deployment" button="Create it" act={act} close={close} blocked={id.value === "" ? "The ID is missing." : url.value === "" ? "The URL is missing." : ""}>
      <p>The server calls the URL for each run of its workflows. An ID that exists keeps what is not given here.</p>
      <label>ID<input name="id" value={id.value} onInput={(e) => (id.value = e.currentTarget.value.trim())} spellcheck={false} /></label>
      <label>URL<input name="url" value={url.value} placeholder="http://127.0.0.1:3000" onInput={(e) => (url.value = e.currentTarget.value.trim())} spellcheck={false} /></label>
      <label>Workflows, separated by commas<input name="workflows" value={workflows.value} placeholder="any" onInput={(e) => (workflows.value = e.currentTarget.value)} spellcheck={false} /></label>
      <Commands cli={`stepwell deployments add ${quote(path.id)} ${quote(body.url || "URL")}${names.map((n) => ` --workflow ${quote(n)}`).join("")}`}
        curl={curl(server, "PUT", addressOf("PUT /v1/deployments/{id}", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

// Move changes only the URL: what else the deployment has registered stays.
function Move({ of: d, done, close }: DialogProps & { of: Deployment }) {
  const url = useSignal(d.url);
  const path = { id: d.id };
  const { waitingMessages } = d;
  const body = { url: url.value };
  const act = async () => {
    await call(project.value, "PATCH /v1/deployments/{id}", { path, body });
    done();
  };
  const n = capped(waitingMessages, 1000);
  return (
    <Dialog title={`Move ${d.id}`} button="Move it" act={act} close={close}
      blocked={url.value === d.url ? "This is its URL now." : ""}>
      <label>New URL<input name="url" value={url.value} onInput={(e) => (url.value = e.currentTarget.value.trim())} spellcheck={false} /></label>
      <p>{waitingMessages === 0 ? "No message waits for it." : `${n} ${n === "1" ? "message that failed is" : "messages that failed are"} delivered at once.`} Parked messages stay parked.</p>
      <Commands cli={`stepwell deployments move ${quote(d.id)} ${quote(url.value)}`}
        curl={curl(server, "PATCH", addressOf("PATCH /v1/deployments/{id}", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

function Forget({ of: d, done, close }: DialogProps & { of: Deployment }) {
  const path = { id: d.id };
  const act = async () => {
    await call(project.value, "DELETE /v1/deployments/{id}", { path });
    done();
  };
  return (
    <Dialog title={`Forget ${d.id}`} button="Forget it" danger act={act} close={close}>
      <p>{d.openRuns > 0 ? `${capped(d.openRuns, 10_000)} open ${d.openRuns === 1 ? "run needs" : "runs need"} it. Their` : "Its"} messages wait until it is added again.</p>
      <Commands cli={`stepwell deployments remove ${quote(d.id)}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/deployments/{id}", { path }))} />
    </Dialog>
  );
}
