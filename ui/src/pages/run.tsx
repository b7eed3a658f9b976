// The page of a run: what it is, how it stands, what one can do, and its parts.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import type { Explanation, Run } from "../api.gen";
import { addressOf, call, server } from "../api";
import { tick } from "../clock";
import { formatCount, sumOf, type Count } from "../lib/counts";
import { formatDuration } from "../lib/duration";
import { formatTerm } from "../lib/filter";
import { titleOf } from "../lib/names";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { durationOf, hasEnded } from "../lib/status";
import { stateOf } from "../lib/why";
import { useLive } from "../live";
import { go, heading, href, project } from "../location";
import { PageCommands, Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";
import { beside, listAddress, noteFocus } from "../runlist";
import { useKeys } from "../shortcuts";
import { Actions } from "./actions";
import { Data } from "./data";
import { Family } from "./family";
import { Hooks } from "./hooks";
import { Log } from "./log";
import { Messages } from "./messages";
import { readRun } from "./readrun";
import { RunGraph } from "./rungraph";
import { Steps } from "./steps";
import { Store } from "./store";
import { Streams } from "./streams";
import { Timeline } from "./timeline";
import { Why } from "./why";

const pollEvery = 2000;

const tabs = [
  { name: "timeline", title: "Timeline", key: "t" }, { name: "log", title: "Log", key: "l" }, { name: "data", title: "Data", key: "d" },
  { name: "steps", title: "Steps", key: "s" }, { name: "hooks", title: "Hooks and waits", key: "h" },
  { name: "graph", title: "Graph", key: "" }, { name: "family", title: "Family", key: "f" }, { name: "streams", title: "Streams", key: "" },
  { name: "store", title: "Store", key: "" }, { name: "messages", title: "Messages", key: "m" },
];

export function RunPage({ id, tab }: { id: string; tab: string }) {
  const last = useSignal<Run | null>(null);
  const why = useSignal<Explanation | null>(null);
  const acts = useSignal(0); // how often somebody has done something here
  const ended = last.value !== null && hasEnded(last.value);
  const keep = (r: Run) => {
    if (r.lastSeq >= (last.peek()?.lastSeq ?? 0)) last.value = r;
  };
  const run = useResource(async (signal) => {
    const answer = await readRun(id, signal);
    keep(answer);
    return answer;
  }, [project.value, id], { every: ended ? 0 : pollEvery, on: last.value ? [] : ["settings", "runs"] }); // it may come to be
  const collecting = run.problem.value?.code === "run_collecting";
  useLive(ended || run.problem.value?.status === 404 ? "" : `run ${id}`, () => ({ run: id, after: last.peek()?.lastSeq ?? 0 }), (m) => {
    if (m.kind !== "run" || m.data.id !== id) return;
    if (hasEnded(m.data)) run.refresh(); // lists do not have all that is known of an end
    else keep(m.data);
  }, run.refresh);
  const open = (other: string) => {
    if (!other) return;
    noteFocus(other);
    go(href(["runs", other, ...(tab === "timeline" ? [] : [tab])]), "replace");
  };
  useKeys({ u: () => go(listAddress(), "back"), "[": () => open(beside(id, -1)), "]": () => open(beside(id, 1)), ...Object.fromEntries(tabs.filter((t) => t.key).map((t) => [t.key, () => go(href(["runs", id, t.name]), "replace")])) });
  const r = last.value;
  const title = r ? `${titleOf(r.workflow)} ${shortId(id)}` : "";
  useEffect(() => {
    heading.value = title;
    return () => (heading.value = "");
  }, [title]);
  if (collecting) {
    return (
      <main class="page"><Empty title="This run has not started">
        <p class="mono">{id}</p>
        <p>{run.problem.value?.message}</p>
        <a class="button" href={href(["collections", id])}>Its collection</a>
      </Empty></main>
    );
  }
  if (run.problem.value?.status === 404) {
    return (
      <main class="page"><Empty title="There is no run with this ID">
        <p class="mono">{id}</p>
        <p>It never was, it belongs to another project, or retention has removed it.</p>
        <a class="button" href={href(["runs"])}>All runs</a>
      </Empty></main>
    );
  }
  const acted = () => {
    acts.value++;
    run.refresh();
  };
  if (!r) return <main class="page">{run.problem.value ? <Trouble problem={run.problem.value} retry={run.refresh} /> : <Loading what="the run" />}</main>;
  return (
    <main class="page">
      <Head run={r} why={why.value} refresh={acted} />
      {run.problem.value && <Trouble problem={run.problem.value} retry={run.refresh} />}
      <Why run={r} acts={acts.value} explained={(e) => (why.value = e)} done={run.refresh} />
      <Tabs run={r} chosen={tab} />
      <section id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "timeline" && <Timeline run={r} />}
        {tab === "log" && <Log run={r} />}
        {tab === "data" && <Data run={r} />}
        {tab === "steps" && <Steps run={r} />}
        {tab === "graph" && <RunGraph run={r} why={why.value} />}
        {tab === "hooks" && <Hooks run={r} />}
        {tab === "family" && <Family run={r} />}
        {tab === "streams" && <Streams run={r} />}
        {tab === "store" && <Store run={r} />}
        {tab === "messages" && <Messages run={r} />}
      </section>
    </main>
  );
}

// Tabs are the parts of the page. Those that may be empty say how much there is, so that nobody needs to look.
function Tabs({ run: r, chosen }: { run: Run; chosen: string }) {
  const counts = useResource((signal) => call(project.value, "GET /v1/runs/{id}/counts", { path: { id: r.id }, signal }),
    [r.id], { on: hasEnded(r) ? [] : ["runs", "queue"], version: [r.lastSeq, r.status].join() });
  const c = counts.data.value;
  const badges: Record<string, Count> = {
    log: { count: r.lastSeq, atLeast: false }, ...(c && {
      steps: sumOf(c.steps), hooks: sumOf(c.hooks, c.waits), family: sumOf(c.children), streams: sumOf(c.streams), store: sumOf(c.values), messages: sumOf(c.messages),
    }),
  };
  return (
    <div class="tabs" role="tablist" aria-label="Parts of the run">
      {tabs.filter((t) => t.name !== "graph" || isOfFlow(r)).map((t) => (
        <a role="tab" id={`tab-${t.name}`} aria-selected={t.name === chosen} aria-controls="tab-panel" href={href(["runs", r.id, t.name])}>{t.title}
          {badges[t.name] && <span class="badge">{formatCount(badges[t.name]!)}</span>}</a>
      ))}
    </div>
  );
}

// isOfFlow reports whether the run is probably one of a flow, whose versions are deployments with its name.
function isOfFlow(r: Run): boolean {
  return r.deployment.startsWith(`${r.workflow}@`);
}

function Head({ run: r, why, refresh }: { run: Run; why: Explanation | null; refresh: () => void }) {
  const state = stateOf(r, why, tick.value);
  const show = { path: { id: r.id }, query: { payloads: false } };
  return (
    <header class="run-head">
      <nav class="crumbs" aria-label="Path"><a href={listAddress()} data-back>Runs</a> / <a href={href(["runs"], { q: formatTerm({ field: "workflow", value: r.workflow }) })}><Name of={r.workflow} /></a></nav>
      <div class="run-title">
        <h1><Name of={r.workflow} /></h1>
        <span class={`pill ${state.look}`}><Status {...state} /></span>
        <span class="took">{formatDuration(durationOf(r, tick.value))}{!hasEnded(r) && <span class="quiet"> so far</span>}</span>
        <Actions run={r} why={why} done={refresh} />
      </div>
      <About>
      <div class="run-id"><span class="mono">{r.id}</span><Copy text={r.id} what="the run’s ID" />
        <PageCommands cli={`stepwell runs show ${quote(r.id)}`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}", show))} /></div>
      <dl class="facts">
        {titleOf(r.workflow) !== r.workflow && <div><dt>workflow</dt><dd class="mono">{r.workflow}</dd></div>}
        <div><dt>deployment</dt><dd>{r.deployment}{r.driver === "client" && <span class="quiet"> · Workflow SDK</span>}</dd></div>
        <div><dt>created</dt><dd><Clock at={r.createdAt} /> <span class="quiet"><Age at={r.createdAt} /></span></dd></div>
        {r.key && <div><dt>key</dt><dd><a href={href(["runs"], { q: formatTerm({ field: "key", value: r.key }) })}>{r.key}</a></dd></div>}
        {r.parentId && <div><dt>parent</dt><dd><a class="mono" href={href(["runs", r.parentId])}>…{r.parentId.slice(-8)}</a></dd></div>}
        {r.continuedFrom && <div><dt>continues</dt><dd><a class="mono" href={href(["runs", r.continuedFrom])}>…{r.continuedFrom.slice(-8)}</a></dd></div>}
        {r.continuedAs && <div><dt>continued as</dt><dd><a class="mono" href={href(["runs", r.continuedAs])}>…{r.continuedAs.slice(-8)}</a></dd></div>}
        {r.forkOf && <div><dt>goes on from</dt><dd><a class="mono" href={`${href(["runs", r.forkOf.runId, "log"])}#e${r.forkOf.events}`}>…{r.forkOf.runId.slice(-8)}</a> <span class="quiet">event {r.forkOf.events}{again(r.forkOf)}</span></dd></div>}
        {hasEnded(r) && r.driver === "server" && <Forks of={r.id} />}
        {r.deadline && !hasEnded(r) && <div><dt>deadline</dt><dd><Age at={r.deadline} /></dd></div>}
        {Object.entries(r.attributes).map(([name, value]) => <div><dt>{name}</dt><dd>{value || <span class="quiet">empty</span>}</dd></div>)}
      </dl>
      </About>
    </header>
  );
}

// again says what was open where a fork goes on, which it does again.
function again({ steps = 0, children = 0 }: NonNullable<Run["forkOf"]>): string {
  const parts = [steps > 0 && `open steps executed again: ${steps}`, children > 0 && `open child runs started again: ${children}`];
  return parts.filter(Boolean).map((part) => `; ${part}`).join("");
}

// Forks are the newest runs that go on from this one.
function Forks({ of }: { of: string }) {
  const forks = useResource((signal) => call(project.value, "GET /v1/runs", { query: { forkOf: of, limit: 3 }, signal }), [of]).data.value?.data ?? [];
  return forks.length === 0 ? null : (
    <div><dt>forks</dt><dd>{forks.map((f, i) => <>{i > 0 && ", "}<a class="mono" href={href(["runs", f.id])}>…{f.id.slice(-8)}</a></>)}</dd></div>
  );
}

const phone = matchMedia("(max-width: 760px)");

// About is folded where it would push the parts of the run from the screen.
function About({ children }: { children: ComponentChildren }) {
  return <details class="about" open={!phone.matches}><summary>About the run</summary>{children}</details>;
}
