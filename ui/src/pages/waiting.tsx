// What runs wait for: people and other systems, signals, and times.
import { useSignal } from "@preact/signals";
import type { Api, Hook, ListedSignal, Wait } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { member, parseJson, readable, writeJson } from "../lib/jsontext";
import { titleOfHook, titleOfWait } from "../lib/names";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { approvalsIn, type OpenApproval } from "../lib/approval";
import { useList, type List } from "../list";
import { href, page, project } from "../location";
import { countApprovals } from "../approvals";
import { ApprovalCard } from "../parts/approval";
import { Commands, Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Filter, param, Rows, Tabs } from "../parts/list";
import { Name } from "../parts/name";
import { Empty } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { may, needs, showsRuns } from "../session";
import { me } from "../voter";
import { Resume, Signal } from "./actions";

const tabs = [{ name: "approvals", title: "Approvals" }, { name: "hooks", title: "Hooks" }, { name: "signals", title: "Signals" }, { name: "timers", title: "Timers" }];

const views: Record<string, () => preact.JSX.Element> = { approvals: Approvals, hooks: Hooks, signals: Signals, timers: Timers };

export function Waiting() {
  const wanted = page.value.segments[1] ?? "approvals";
  const View = Object.hasOwn(views, wanted) && (wanted === "approvals" || showsRuns()) ? views[wanted] : undefined;
  if (View) return <main class="page"><View key={wanted} /></main>;
  return (
    <main class="page"><Empty title={Object.hasOwn(views, wanted) ? "This is not for your key" : `Waiting has no part “${wanted}”`}><p>{Object.hasOwn(views, wanted) ? needs("metadata") : "Its address may be mistyped, or of another version."}</p>
      <a class="button" href={href(["waiting"])}>What waits for people</a></Empty></main>
  );
}

interface HeadProps {
  tab: string;
  cli: string;
  address: string;
  children?: preact.ComponentChildren;
}

function Head({ tab, cli, address, children }: HeadProps) {
  return (
    <>
      <header class="page-head"><h1>Waiting</h1>{children}<Commands cli={cli} curl={curl(server, "GET", address)} /></header>
      <Tabs place="waiting" tabs={showsRuns() ? tabs : tabs.slice(0, 1)} chosen={tab} label="What runs wait for" />
    </>
  );
}

function RunLink({ id }: { id: string }) {
  return <a href={href(["runs", id])} class="mono" title={id}>{shortId(id)}</a>;
}

// flag returns a flag of a command, if the filter has it.
function flag(name: string, field: string): string {
  return param(field) ? ` ${name} ${quote(param(field))}` : "";
}

function Approvals() {
  const mine = param("show") === "mine" && me.value.length > 0;
  const query = { workflow: param("workflow") || undefined, runId: param("run") || undefined, for: mine ? me.value : undefined, limit: 20 };
  const said = useSignal("");
  const list: List<OpenApproval> = useList(async (cursor, signal) => approvalsIn(await callText(project.value, "GET /v1/approvals", { query: { ...query, cursor }, signal })),
    [project.value, JSON.stringify(query)], (a) => `${a.runId} ${a.hookId}`, { on: ["runs"] });
  const voted = (text: string) => {
    said.value = text;
    list.refresh();
    countApprovals();
  };
  return (
    <>
      <Head tab="approvals" cli={`stepwell hooks approvals${flag("--workflow", "workflow")}${flag("--run", "run")}${mine ? me.value.map((name) => ` --for ${quote(name)}`).join("") : ""}`}
        address={addressOf("GET /v1/approvals", { query })} />
      <section id="tab-panel" role="tabpanel" aria-labelledby="tab-approvals">
        <Filter>
          <label>Workflow<input name="workflow" id="filter" value={param("workflow")} spellcheck={false} /></label>
          {param("run") && <label>Run<input name="run" class="mono" value={param("run")} spellcheck={false} /></label>}
          {(may("read") || may("invoke")) && <label>Show<select name="show" value={mine ? "mine" : ""}><option value="">all</option>
            <option value="mine" disabled={me.value.length === 0}>{me.value.length > 0 ? `what waits for ${me.value.join(", ")}` : "what waits for me: give your name in a card"}</option></select></label>}
        </Filter>
        <p class="said" role="status">{said.value}</p>
        <Rows list={list} what="approvals" empty={mine
          ? <Empty title="No approval waits for you"><p>You are {me.value.join(", ")}: approvals for others, and those on which you have voted, are not shown.</p></Empty>
          : <Empty title="No approval is open"><p>A flow asks for one with <code>approval</code>, a function with <code>openHook</code>.</p></Empty>}>
          <div class="cards">{list.rows.map((a) => <ApprovalCard key={`${a.runId} ${a.hookId}`} approval={a} done={voted} />)}</div>
        </Rows>
      </section>
    </>
  );
}

// isVote reports whether a hook is an approval, by its token.
const isVote = (h: Hook) => h.token?.startsWith("approval_") ?? false;

function Hooks() {
  const query = {
    workflow: param("workflow") || undefined, olderThan: param("open") || undefined,
    tokenPrefix: (may("read") && param("token")) || undefined, limit: 100,
  };
  const list: List<Hook> = useList((cursor, signal) =>
    call(project.value, "GET /v1/hooks", { query: { ...query, cursor }, signal }), [project.value, JSON.stringify(query)], (h) => `${h.runId} ${h.id}`, { on: ["runs"] });
  const open = useSignal<Hook | null>(null);
  return (
    <>
      <Head tab="hooks" cli={`stepwell hooks list${flag("--workflow", "workflow")}${flag("--token-prefix", "token")}${flag("--older-than", "open")}`}
        address={addressOf("GET /v1/hooks", { query })} />
      <section id="tab-panel" role="tabpanel" aria-labelledby="tab-hooks">
        <Filter>
          <label>Workflow<input name="workflow" id="filter" value={param("workflow")} spellcheck={false} /></label>
          <label>Token begins with<input name="token" value={param("token")} disabled={!may("read")} title={may("read") ? "" : needs("read")} spellcheck={false} /></label>
          <label>Open for<select name="open" value={param("open")}>
            <option value="">any time</option><option value="1h">1 hour</option><option value="24h">1 day</option><option value="168h">7 days</option></select></label>
        </Filter>
        <Rows list={list} what="hooks" empty={<Empty title="No hook is open"><p>A run opens a hook to wait for a person, a webhook or a signal.</p></Empty>}>
          <table class="list waiting">
            <thead><tr><th>Hook</th><th>Workflow</th><th>Run</th><th>For</th><th>Token</th><th class="num">Open since</th><th><span class="hidden">Actions</span></th></tr></thead>
            <tbody>{list.rows.map((h) => (
              <tr key={`${h.runId} ${h.id}`}>
                <td><a class="strong" href={href(["runs", h.runId, "log"], { of: h.id })} title={h.id}>{titleOfHook(h)}</a>{h.status === "retained" && <span class="quiet"> retained</span>}</td>
                <td><Name of={h.workflow ?? ""} /></td><td><RunLink id={h.runId} /></td>
                <td class="for">{h.signal ? <>signal {h.signal}{h.condition && <span class="mono quiet"> if {h.condition}</span>}</> : h.webhook ? "webhook" : isVote(h) ? "votes" : "a payload"}</td>
                <td class="mono token">{h.token ? <>{h.token}<Copy text={h.token} what="the token" /></> : <span class="quiet">–</span>}</td>
                <td class="num"><Age at={h.createdAt} /></td>
                <td class="row-actions">{isVote(h) ? <a class="button" href={href(["waiting", "approvals"], { run: h.runId })}>Vote …</a> : <button type="button" disabled={!may("invoke") || h.status !== "active"} aria-label={`Resume ${titleOfHook(h)} of ${shortId(h.runId)}`}
                  title={!may("invoke") ? needs("invoke") : h.status !== "active" ? "Its run has ended." : ""} onClick={() => (open.value = h)}>Resume …</button>}</td>
              </tr>
            ))}</tbody>
          </table>
        </Rows>
      </section>
      {open.value && <Resume run={{ id: open.value.runId }} only={open.value} done={list.refresh} close={() => (open.value = null)} />}
    </>
  );
}

// readSignals reads a page. The data of each is text, with numbers as they were written.
async function readSignals(query: Api["GET /v1/signals"]["query"], signal?: AbortSignal) {
  const text = await callText(project.value, "GET /v1/signals", { query, signal });
  const answer = JSON.parse(text) as Api["GET /v1/signals"]["answer"];
  const items = member(parseJson(text), "data");
  answer.data.forEach((s, i) => {
    const data = items?.kind === "array" ? member(items.items[i], "data") : undefined;
    if (data) s.data = readable(writeJson(data, false));
  });
  return answer;
}

function Signals() {
  const query = { name: param("name") || undefined, order: "desc" as const, limit: 100 };
  const list: List<ListedSignal> = useList((cursor, signal) => readSignals({ ...query, cursor }, signal), [project.value, JSON.stringify(query)], (s) => s.id, { on: ["settings"] });
  const open = useSignal(false);
  return (
    <>
      <Head tab="signals" cli={`stepwell signals list --order desc${flag("--name", "name")}`} address={addressOf("GET /v1/signals", { query })}>
        <button type="button" disabled={!may("invoke")} title={may("invoke") ? "" : needs("invoke")} onClick={() => (open.value = true)}>Send …</button>
      </Head>
      <section id="tab-panel" role="tabpanel" aria-labelledby="tab-signals">
        <Filter><label>Name<input name="name" id="filter" value={param("name")} spellcheck={false} /></label></Filter>
        <Rows list={list} what="signals" empty={<Empty title="No signal is stored">
          <p>A signal is here until every hook that waits for it has it, and as long as its sender wants it kept for later hooks.</p></Empty>}>
          <table class="list">
            <thead><tr><th>Signal</th><th>Data</th><th>Sender’s ID</th><th class="num">Sent</th><th class="num">Kept until</th></tr></thead>
            <tbody>{list.rows.map((s) => (
              <tr key={s.id}><td class="strong" title={s.id}>{s.name}</td>
                <td class="mono data-cell">{s.truncated ? <span class="quiet">more than 16 KiB</span> : s.data === undefined ? <span class="quiet">–</span> : String(s.data)}</td>
                <td class="mono">{s.key ?? <span class="quiet">–</span>}</td>
                <td class="num"><Age at={s.createdAt} /></td><td class="num"><Clock at={s.keepUntil} /></td></tr>
            ))}</tbody>
          </table>
        </Rows>
      </section>
      {open.value && <Signal done={list.refresh} close={() => (open.value = false)} />}
    </>
  );
}

function Timers() {
  const query = { workflow: param("workflow") || undefined, limit: 100 };
  const list: List<Wait> = useList((cursor, signal) =>
    call(project.value, "GET /v1/waits", { query: { ...query, cursor }, signal }), [project.value, JSON.stringify(query)], (w) => `${w.runId} ${w.id}`, { on: ["runs"] });
  return (
    <>
      <Head tab="timers" cli={`stepwell waits list${flag("--workflow", "workflow")}`} address={addressOf("GET /v1/waits", { query })} />
      <section id="tab-panel" role="tabpanel" aria-labelledby="tab-timers">
        <Filter><label>Workflow<input name="workflow" id="filter" value={param("workflow")} spellcheck={false} /></label></Filter>
        <Rows list={list} what="timers" empty={<Empty title="No run sleeps">
          <p>Waits are here until their time. Runs that start later are in <a href={href(["queue", "delayed"])}>the queue</a>.</p></Empty>}>
          <table class="list">
            <thead><tr><th>Ends</th><th>Workflow</th><th>Run</th><th>Wait</th><th class="num">Began</th></tr></thead>
            <tbody>{list.rows.map((w) => (
              <tr key={`${w.runId} ${w.id}`}>
                <td><Status look="waiting" word="" />{w.resumeAt && <> <Age at={w.resumeAt} /> <span class="quiet"><Clock at={w.resumeAt} /></span></>}</td>
                <td><Name of={w.workflow ?? ""} /></td><td><RunLink id={w.runId} /></td>
                <td><a class="strong" href={href(["runs", w.runId, "log"], { of: w.id })} title={w.id}>{titleOfWait(w)}</a></td>
                <td class="num"><Age at={w.createdAt} /></td></tr>
            ))}</tbody>
          </table>
        </Rows>
      </section>
    </>
  );
}
