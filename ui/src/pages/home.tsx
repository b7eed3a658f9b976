// What a key of the role invoke may do: start runs, look one up, vote, and send signals.
import { useSignal } from "@preact/signals";
import { waiting } from "../approvals";
import { addressOf, callText, server } from "../api";
import { approvalsIn } from "../lib/approval";
import { curl } from "../lib/shell";
import { hasEnded, stateOfRun } from "../lib/status";
import { go, href, project } from "../location";
import { ApprovalCard } from "../parts/approval";
import { Commands } from "../parts/copy";
import { Status } from "../parts/icon";
import { lazyPart } from "../parts/lazy";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Facts } from "../parts/one";
import { Clock } from "../parts/time";
import { useResource } from "../resource";
import { Signal } from "./actions";
import { readRun } from "./readrun";
import type { StartProps } from "./start";

const Start = lazyPart<StartProps>("the form", async () => (await import("./tools")).Start);

export function Home() {
  const open = useSignal<"" | "start" | "signal">("");
  const id = useSignal("");
  const close = () => (open.value = "");
  return (
    <main class="page">
      <header class="page-head"><h1>What this key may do</h1></header>
      <p class="quiet">The role invoke starts runs and answers those that wait. It sees no other data of the project.</p>
      <div class="home">
        <section><h2>Start a run</h2><button type="button" class="primary" onClick={() => (open.value = "start")}>Start a run …</button></section>
        <section><h2>Look up a run</h2>
          <form onSubmit={(e) => { e.preventDefault(); if (id.value) go(href(["runs", id.value])); }}>
            <label>Its ID<input class="mono" id="filter" value={id.value} placeholder="wrun_…" spellcheck={false} onInput={(e) => (id.value = e.currentTarget.value.trim())} /></label>
            <button type="submit" disabled={!id.value}>Show it</button>
          </form></section>
        <section><h2>Vote</h2><a class="button" href={href(["waiting"])}>{waiting.value ? `Approvals: ${waiting.value}` : "Approvals"}</a></section>
        <section><h2>Send a signal</h2><button type="button" onClick={() => (open.value = "signal")}>Send …</button></section>
      </div>
      {open.value === "start" && <Start close={close} />}
      {open.value === "signal" && <Signal done={close} close={close} />}
    </main>
  );
}

const readEvery = 5000;

// Lookup is the page of a run for those who do not see what is in it.
export function Lookup({ id }: { id: string }) {
  const path = { id };
  const read = useResource((signal) => readRun(id, signal), [id], { on: ["runs"], every: readEvery });
  const run = read.data.value;
  const open = run && !hasEnded(run);
  const approvals = useResource(async (signal) => open ? approvalsIn(await callText(project.value, "GET /v1/approvals", { query: { runId: id }, signal })) : null,
    [id, open], { on: open ? ["runs"] : [], every: open ? readEvery : 0 });
  if (read.problem.value?.code === "run_not_found") {
    return <main class="page"><Empty title="There is no run with this ID"><p class="mono">{id}</p><a class="button" href={href(["overview"])}>Look up another one</a></Empty></main>;
  }
  const voted = () => { approvals.refresh(); read.refresh(); };
  return (
    <main class="page">
      <header class="page-head"><h1>{run?.workflow ?? "Run"}</h1>{run && <span class="pill"><Status {...stateOfRun(run, Date.now())} /></span>}
        <Commands cli={`stepwell runs show ${id}`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}", { path }))} /></header>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!run && !read.problem.value && <Loading what="the run" />}
      {run && <Facts facts={[["Run", <span class="mono">{run.id}</span>], ["Deployment", run.deployment], ["Created", <Clock at={run.createdAt} />],
        ["Ended", run.completedAt && <Clock at={run.completedAt} />], ["Error", run.error?.code]]} />}
      <div class="cards">{approvals.data.value?.data.map((a) => <ApprovalCard here key={a.hookId} approval={a} done={voted} />)}</div>
    </main>
  );
}
