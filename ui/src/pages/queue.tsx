// The queue: what is delivered, what failed, and what needs attention.
import { useSignal } from "@preact/signals";
import type { Api, Message, QueueState, Work } from "../api.gen";
import { addressOf, call, server, type Operation } from "../api";
import { formatCount, sumOf } from "../lib/counts";
import { contract, meaningOf } from "../lib/meaning";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import type { State } from "../lib/status";
import { useList } from "../list";
import { href, page, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Status } from "../parts/icon";
import { Filter, param, Rows, Tabs } from "../parts/list";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { may, needs } from "../session";

type Part = Exclude<QueueState, "waiting">;

// The parts of the queue. A message is in one of them.
const parts: Array<{ name: Part; title: string; look: State["look"]; empty: string }> = [
  { name: "parked", title: "parked", look: "failed", empty: "A message that fails too often is parked here, until somebody retries or discards it." },
  { name: "retrying", title: "retrying", look: "retrying", empty: "A message that failed waits here for its next delivery." },
  { name: "leased", title: "delivering", look: "running", empty: "A message is here while its function works on it." },
  { name: "due", title: "due", look: "pending", empty: "A message that can be delivered is here until a server takes it." },
  { name: "delayed", title: "delayed", look: "waiting", empty: "A message is here until its time: the end of a wait, or the planned start of a run." },
];

const works: Work[] = ["run", "step", "deadline", "cancel", "report", "end", "signal", "lookback"];

// conditions are those of the address.
function conditions() {
  return {
    runId: param("run") || undefined, deployment: param("deployment") || undefined, work: (param("work") || undefined) as Work | undefined,
    errorContains: param("error") || undefined,
  };
}

// flags are the conditions on the command line.
function flags(): string {
  return [["run", "--run"], ["deployment", "--deployment"], ["work", "--work"], ["error", "--error-contains"]]
    .map(([name, flag]) => (param(name!) ? ` ${flag} ${quote(param(name!))}` : "")).join("");
}

export function Queue() {
  const part = parts.find((p) => p.name === page.value.segments[1]) ?? parts[0]!;
  const query = { ...conditions(), state: part.name, limit: 100 };
  const counts = useResource((signal) => call(project.value, "GET /v1/messages/count", { signal }), [project.value], { on: ["queue"] });
  const list = useList<Message>((cursor, signal) =>
    call(project.value, "GET /v1/messages", { query: { ...query, cursor }, signal }), [project.value, JSON.stringify(query)], (m) => m.id, { on: ["queue"] });
  const refresh = () => {
    list.refresh();
    counts.refresh();
  };
  const oldest = counts.data.value?.oldestDue;
  return (
    <main class="page">
      <header class="page-head"><h1>Queue</h1>
        {oldest && <span class="quiet count">the oldest due message waits since <Age at={oldest} /></span>}
        <Commands cli={`stepwell messages list --state ${part.name}${flags()}`} curl={curl(server, "GET", addressOf("GET /v1/messages", { query }))} />
      </header>
      {counts.problem.value && <Trouble problem={counts.problem.value} retry={counts.refresh} />}
      <Tabs place="queue" chosen={part.name} label="Parts of the queue"
        tabs={parts.map((p) => ({ name: p.name, title: p.title, badge: counts.data.value ? formatCount(sumOf(counts.data.value[p.name])) : undefined }))} />
      <section id="tab-panel" role="tabpanel" aria-labelledby={`tab-${part.name}`}>
        <div class="bar"><Conditions /><Bulk part={part.name} refresh={refresh} /></div>
        <Rows list={list} what="messages" empty={<Nothing empty={part.empty} />}>
          <table class="list queue">
            <thead><tr><th>State</th><th>Deployment</th><th>Run</th><th>Work</th><th class="num">Tries</th><th>Last error</th><th><span class="hidden">Actions</span></th></tr></thead>
            <tbody>{list.rows.map((m) => <Row key={m.id} message={m} part={part} refresh={refresh} />)}</tbody>
          </table>
        </Rows>
      </section>
    </main>
  );
}

function Nothing({ empty }: { empty: string }) {
  const filtered = Object.values(conditions()).some(Boolean);
  return (
    <Empty title={filtered ? "No message matches" : "There are no such messages"}>
      <p>{empty}</p>
      {filtered && <a class="button" href={href(page.value.segments)}>Remove the filter</a>}
    </Empty>
  );
}

function Conditions() {
  const deployments = useResource((signal) => call(project.value, "GET /v1/deployments", { signal }), [project.value], { on: ["settings"] });
  const ids = new Set([...(deployments.data.value?.data.map((d) => d.id) ?? []), param("deployment")].filter(Boolean));
  return (
    <Filter>
      <label>Deployment<select name="deployment" value={param("deployment")}><option value="">all</option>{[...ids].map((id) => <option value={id}>{id}</option>)}</select></label>
      <label>Work<select name="work" value={param("work")}><option value="">all</option>{works.map((w) => <option value={w}>{w}</option>)}</select></label>
      <label>Error contains<input name="error" id="filter" value={param("error")} disabled={!may("read")} title={may("read") ? "" : needs("read")} spellcheck={false} /></label>
      {param("run") && <label>Run<input name="run" value={param("run")} /></label>}
    </Filter>
  );
}

interface Action {
  verb: "Retry" | "Discard";
  one: Operation;
  all: "POST /v1/messages/retry" | "POST /v1/messages/discard";
  cli: string;
  what: string;
}

const retry: Action = {
  verb: "Retry", one: "POST /v1/messages/{id}/retry", all: "POST /v1/messages/retry", cli: "stepwell messages retry",
  what: "It is delivered at once, as if for the first time.",
};
const discard: Action = {
  verb: "Discard", one: "DELETE /v1/messages/{id}", all: "POST /v1/messages/discard", cli: "stepwell messages discard",
  what: "It is deleted. A run that cannot go on without it gets a new one within about a minute: cancel a run that should not go on.",
};

function Row({ message: m, part, refresh }: { message: Message; part: (typeof parts)[number]; refresh: () => void }) {
  const open = useSignal<Action | null>(null);
  const button = (action: Action, text: string) => (
    <button type="button" disabled={!may("write")} title={may("write") ? "" : needs("write")} onClick={() => (open.value = action)}
      aria-label={`${text} ${shortId(m.id)}`}>{text}</button>
  );
  return (
    <tr>
      <td><Status look={part.look} word={part.title} /> <span class="quiet"><When message={m} part={part.name} /></span></td>
      <td class="strong">{m.deploymentId || <span class="quiet">–</span>}</td>
      <td class="mono">{m.runId ? <a href={href(["runs", m.runId])} title={m.runId}>{shortId(m.runId)}</a> : <span class="quiet">–</span>}</td>
      <td>{m.work ?? "call"}{m.subject && <span class="quiet mono"> {m.subject}</span>}</td>
      <td class="num">{m.deliveryCount}</td>
      <td class="error"><Failure message={m} /></td>
      <td class="row-actions">
        {(part.name === "parked" || part.name === "retrying") && button(retry, "Retry")}
        {button(discard, "Discard …")}
        {open.value && <One message={m} action={open.value} refresh={refresh} close={() => (open.value = null)} />}
      </td>
    </tr>
  );
}

function When({ message: m, part }: { message: Message; part: Part }) {
  if (part === "parked") return <Age at={m.parkedAt ?? m.createdAt} />;
  if (part === "leased") return <>lease ends <Age at={m.dueAt} /></>;
  return <>{part === "retrying" && "next "}<Age at={m.dueAt} /></>;
}

function Failure({ message: m }: { message: Message }) {
  if (!m.lastError) return <span class="quiet">{may("read") ? "–" : "Not shown to keys of the role metadata."}</span>;
  const meaning = meaningOf(m.lastError);
  return (
    <>
      <span class="mono">{m.lastError}</span>
      {meaning && <p class="quiet small">{meaning.text} <a href={contract(meaning.anchor)} target="_blank" rel="noreferrer">What it means</a></p>}
    </>
  );
}

function One({ message: m, action, refresh, close }: { message: Message; action: Action; refresh: () => void; close: () => void }) {
  const path = { id: m.id };
  const [method = ""] = action.one.split(" ");
  const act = async () => {
    await call(project.value, action.one, { path } as never);
    refresh();
  };
  return (
    <Dialog title={`${action.verb} this message`} button={`${action.verb} it`} danger={action === discard} act={act} close={close}>
      <p class="mono">{m.id}</p>
      <p>{action.what}</p>
      <Commands cli={`${action.cli} ${m.id}`} curl={curl(server, method, addressOf(action.one, { path } as never))} />
    </Dialog>
  );
}

function Bulk({ part, refresh }: { part: Part; refresh: () => void }) {
  const open = useSignal<Action | null>(null);
  if (part === "leased") return null;
  const button = (action: Action, text: string) => (
    <button type="button" disabled={!may("write")} title={may("write") ? "" : needs("write")} onClick={() => (open.value = action)}>{text}</button>
  );
  return (
    <div class="actions">
      {(part === "parked" || part === "retrying") && button(retry, "Retry all that match …")}
      {button(discard, "Discard all that match …")}
      {open.value && <All part={part} action={open.value} refresh={refresh} close={() => (open.value = null)} />}
    </div>
  );
}

// All shows what matches before it changes anything.
function All({ part, action, refresh, close }: { part: Part; action: Action; refresh: () => void; close: () => void }) {
  const body = { ...conditions(), state: part } as Api[typeof action.all]["body"];
  const found = useResource((signal) => call(project.value, action.all, { body: { ...body, dryRun: true } as never, signal }), []);
  const n = found.data.value?.matched ?? 0;
  const messages = n === 1 ? "1 message" : `${n.toLocaleString("en")} messages`;
  const act = async () => {
    const { messageIds } = found.data.value!; // not those that came meanwhile
    await call(project.value, action.all, { body: { state: part, messageIds } as never });
    refresh();
  };
  return (
    <Dialog title={`${action.verb} all that match`} button={n > 0 ? `${action.verb} ${messages}` : action.verb} danger={action === discard}
      act={act} close={close} blocked={found.data.value ? (n === 0 ? "No message matches." : "") : "Looking …"}>
      {found.problem.value && <Trouble problem={found.problem.value} retry={found.refresh} />}
      {found.data.value
        ? <p>{messages} {n === 1 ? "matches" : "match"}{flags() && <>: <span class="mono">{flags().trim()}</span></>}.
            {found.data.value.more && " There are more: at most 1,000 are changed at once, so repeat it."}</p>
        : !found.problem.value && <Loading what="what matches" />}
      <p>{action.what.replace(/\bIt is\b/, "Each is")}</p>
      <Commands cli={`${action.cli} --state ${part}${flags()}`} curl={curl(server, "POST", addressOf(action.all, {}), JSON.stringify(body))} />
    </Dialog>
  );
}
