// The way to the first run of a project: start an app, register it, start a run. The steps tick themselves, and the page of
// the first run opens by itself.
import { useEffect } from "preact/hooks";
import { call, server } from "../api";
import { appOf, registrationOf, startOf, ways, type Text } from "../lib/begin";
import { useLive } from "../live";
import { go, href, project, search } from "../location";
import { Copy } from "../parts/copy";
import { Glyph } from "../parts/icon";
import { Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { may, session } from "../session";

const pollEvery = 5000;

export function Begin() {
  const runs = useResource((signal) => call(project.value, "GET /v1/runs", { query: { limit: 1 }, signal }), [project.value], { every: pollEvery });
  useLive("runs first", () => ({ runs: true }), (m) => m.kind === "runs" && m.data.runs.length > 0 && runs.refresh(), runs.refresh);
  const first = runs.data.value?.data[0]?.id;
  useEffect(() => {
    if (first) go(href(["runs", first]), "replace");
  }, [first]);
  const registered = useResource((signal) => call(project.value, "GET /v1/deployments", { signal }), [project.value], { on: ["settings"], every: pollEvery });
  const deployment = registered.data.value?.data[0];
  const way = ways.find((w) => w.name === search.value.get("with"))?.name ?? "http";
  const here = { address: server, project: project.value, open: session.value?.open ?? false };
  const problem = runs.problem.value ?? registered.problem.value;
  return (
    <main class="page overview">
      <header class="page-head"><h1>Overview</h1><span class="quiet">There are no runs yet. Three steps to the first one:</span></header>
      {problem && <Trouble problem={problem} retry={() => { runs.refresh(); registered.refresh(); }} />}
      <ol class="begin">
        <Step done={!!deployment} title={deployment ? "An app is there" : "Start an app"}>
          {!deployment && <>
            <div class="segmented" role="group" aria-label="With">
              {ways.map((w) => <button type="button" aria-pressed={w.name === way} onClick={() => go(href(["overview"], { with: w.name }), "replace")}>{w.title}</button>)}
            </div>
            <Paste of={appOf(way, here)} />
          </>}
        </Step>
        <Step done={!!deployment} title={deployment ? `${deployment.id} is registered` : "Register it"}>
          {!deployment && <Paste of={registrationOf(way, here)} />}
          {!deployment && way === "http" && may("admin") && <p><a class="button" href={href(["deployments"], { add: "hello" })}>New deployment …</a></p>}
        </Step>
        <Step done={false} title="Start a run">
          <Paste of={startOf(way, here, deployment)} />
          {deployment && may("invoke") && <p><a class="button primary" href={href(["runs"], { start: deployment.workflows?.[0] ?? "order" })}>Start a run …</a></p>}
          <p class="quiet">Its page opens here by itself.</p>
        </Step>
      </ol>
    </main>
  );
}

function Step({ done, title, children }: { done: boolean; title: string; children: preact.ComponentChildren }) {
  return (
    <li><Glyph look={done ? "completed" : "pending"} />
      <div><h2 class={done ? "done" : ""}>{title}<span class="hidden">{done ? ", done" : ", to do"}</span></h2>{children}</div></li>
  );
}

// Paste shows what one pastes: as a command, and as a request if there is one.
function Paste({ of }: { of: Text }) {
  return (
    <>
      {of.say && <p>{of.say}</p>}
      {of.paste && <div class="command"><code>{of.paste}</code><Copy text={of.paste} what="the command" /></div>}
      {of.curl && <details class="commands"><summary>or by curl</summary>
        <div class="command"><code>{of.curl}</code><Copy text={of.curl} what="the curl command" /></div></details>}
    </>
  );
}
