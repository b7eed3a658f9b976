// The flows of a project, and one of them: its versions, its graph, its document and its runs.
import { addressOf, call, server } from "../api";
import type { Flow } from "../api.gen";
import { tick } from "../clock";
import { formatTerm } from "../lib/filter";
import { shortId } from "../lib/path";
import { curl, quote } from "../lib/shell";
import { stateOfRun, type State } from "../lib/status";
import { useList } from "../list";
import { href, page, project, search } from "../location";
import { Commands, Copy } from "../parts/copy";
import { Graph } from "../parts/graph";
import { Status } from "../parts/icon";
import { Rows } from "../parts/list";
import { Empty } from "../parts/notice";
import { Facts, One, type Fact } from "../parts/one";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { may, needs } from "../session";

const shownRuns = 10;

export function Flows() {
  const name = page.value.segments[1];
  return name === undefined ? <All /> : <OneFlow key={name} name={name} />;
}

function All() {
  const list = useList((_, signal) => call(project.value, "GET /v1/flows", { signal }), [project.value], (f) => f.name, { on: ["settings"] });
  return (
    <main class="page">
      <header class="page-head"><h1>Flows</h1><Commands cli="stepwell flows list" curl={curl(server, "GET", addressOf("GET /v1/flows", {}))} /></header>
      <Rows list={list} what="flows" empty={<Empty title="There are no flows"><p>A flow is a workflow without code: a document that says which steps there are.
        Store one with <code>stepwell flows put order.yaml</code>.</p></Empty>}>
        <table class="list">
          <thead><tr><th>Flow</th><th>State</th><th class="num">Version</th><th>Deployment</th><th class="num">Stored</th></tr></thead>
          <tbody>{list.rows.map((f) => (
            <tr key={f.name}>
              <td><a class="strong" href={href(["flows", f.name])}>{f.name}</a></td>
              <td><Status {...stateOfFlow(f)} /></td>
              <td class="num" data-of="version">{f.version}</td>
              <td class="mono">{f.deployment}</td>
              <td class="num" data-label="stored"><Age at={f.createdAt} /></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
    </main>
  );
}

function stateOfFlow(f: Flow): State {
  return f.retiredAt ? { look: "cancelled", word: "retired" } : { look: "completed", word: "active" };
}

function OneFlow({ name }: { name: string }) {
  const version = Number(search.value.get("version") ?? 0);
  const request = { path: { name }, query: version ? { version } : {} };
  const read = useResource(async (signal) => {
    const [flow, graph] = await Promise.all([
      call(project.value, "GET /v1/flows/{name}", { ...request, signal }), call(project.value, "GET /v1/flows/{name}/graph", { ...request, signal }),
    ]);
    return { flow, graph };
  }, [project.value, name, version]);
  return (
    <One read={read} place="flows" title="Flows" what="flow" name={name} state={({ flow }) => stateOfFlow(flow)}
      actions={() => <Actions name={name} />}
      facts={({ flow, graph }) => (
        <>
          <Facts facts={factsOf(flow)} />
          <h2 class="gap">Steps</h2>
          <Graph graph={graph} />
          <h2 class="gap">Document <Copy text={flow.document ?? ""} what="the document" /></h2>
          <pre class="raw document" tabIndex={0} aria-label="Document">{flow.document}</pre>
        </>
      )}
      cli={`stepwell flows show ${quote(name)}${version ? ` --version ${version}` : ""}`}
      curl={curl(server, "GET", addressOf("GET /v1/flows/{name}", request))}>
      <Runs name={name} />
    </One>
  );
}

function Actions({ name }: { name: string }) {
  return (
    <div class="actions">
      {may("invoke") ? <a class="button" href={href(["runs"], { start: name })}>Start …</a> : <button type="button" disabled title={needs("invoke")}>Start …</button>}
      <a class="button" href={href(["runs"], { q: formatTerm({ field: "workflow", value: name }) })}>Runs</a>
      <a class="button" href={href(["workflows", name])}>Statistics</a>
    </div>
  );
}

function factsOf(f: Flow): Fact[] {
  const versions = f.versions ?? [];
  return [
    ["Version", f.version],
    ["Deployment", <span class="mono">{f.deployment}</span>],
    ["Stored", <Age at={f.createdAt} />],
    ["Retired", f.retiredAt && <Age at={f.retiredAt} />],
    ["Aliases", f.aliases?.length && f.aliases.map((a, i) => <>{i > 0 && ", "}{a.alias} → {a.version}</>)],
    ["Versions", versions.length > 1 && versions.map((v, i) => <>{i > 0 && ", "}
      <a href={href(["flows", f.name], { version: String(v.version) })} aria-current={v.version === f.version ? "true" : undefined}>{v.version}{v.retiredAt && " (retired)"}</a></>)],
  ];
}

function Runs({ name }: { name: string }) {
  const list = useList((_, signal) =>
    call(project.value, "GET /v1/runs", { query: { workflow: name, limit: shownRuns }, signal }).then(({ data }) => ({ data })), [project.value, name], (r) => r.id, { on: ["runs"] });
  return (
    <>
      <h2 class="gap">Last runs</h2>
      <Rows list={list} what="runs" empty={<p class="quiet">It has no runs.</p>}>
        <table class="list">
          <thead><tr><th>Status</th><th>Run</th><th>Version</th><th>Key</th><th class="num">Created</th></tr></thead>
          <tbody>{list.rows.map((r) => (
            <tr key={r.id}>
              <td><Status {...stateOfRun(r, tick.value)} /></td>
              <td><a class="strong mono" href={href(["runs", r.id, "graph"])} title={r.id}>{shortId(r.id)}</a></td>
              <td class="mono">{r.deployment}</td>
              <td>{r.key}</td>
              <td class="num" data-label="created"><Age at={r.createdAt} /></td>
            </tr>
          ))}</tbody>
        </table>
      </Rows>
    </>
  );
}
