// Servers: the processes that deliver, and the runs that nothing moves.
import { addressOf, base, call, server } from "../api";
import type { ServerProcess } from "../api.gen";
import { tick } from "../clock";
import { formatDuration } from "../lib/duration";
import { pathOf, shortId } from "../lib/path";
import { curl } from "../lib/shell";
import type { State } from "../lib/status";
import { Commands } from "../parts/copy";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age } from "../parts/time";
import { operated, operator, session } from "../session";
import { useResource } from "../resource";

// A server beats each second. The others suspect it when beats are missing for this long (queue/cluster).
const silent = 2500;

function stateOfServer(p: ServerProcess, now: number): State {
  const age = now - Date.parse(p.beatAt);
  return age > silent ? { look: "failed", word: `silent for ${formatDuration(age)}` } : { look: "running", word: "alive" };
}

export function Servers() {
  if (operator.value) return <List />;
  return (
    <main class="page"><header class="page-head"><h1>Servers</h1></header>
      <Empty title="Only operators see the servers"><p>This needs a key of the project {operated} with the role admin.</p></Empty>
    </main>
  );
}

function List() {
  const all = useResource((signal) => call(operated, "GET /v1/servers", { signal }), [], { on: ["servers", "queue"] });
  const found = all.data.value;
  const total = found ? found.servers.reduce((n, p) => n + p.deliveries, found.extended) : 0;
  return (
    <main class="page servers">
      <header class="page-head"><h1>Servers</h1>
        {found && <span class="quiet">{found.servers.length === 1 ? "1 server delivers" : `${found.servers.length} servers deliver`}, {total.toLocaleString("en")}{found.capped && "+"} deliveries under way</span>}
        <Commands cli="stepwell servers" curl={curl(server, "GET", addressOf("GET /v1/servers", {}))} /></header>
      {all.problem.value && <Trouble problem={all.problem.value} retry={all.refresh} />}
      {!found && !all.problem.value && <Loading what="the servers" />}
      {found && found.servers.length === 0 && <Empty title="No server delivers"><p>Runs stand still. Start a server of the role all or worker; one of the role function appears while it drains.</p></Empty>}
      {found && found.servers.length > 0 && (
        <table class="list">
          <thead><tr><th>Status</th><th>Host</th><th>Role</th><th>Version</th><th class="num">Up for</th><th class="num">Last beat</th><th class="num">Deliveries</th><th>Process</th></tr></thead>
          <tbody>{found.servers.map((p) => (
            <tr key={p.id}><td><Status {...stateOfServer(p, Date.parse(found.at))} /></td><td class="strong">{p.host}</td><td>{p.role ?? "–"}</td><td class="mono" title={p.commit && `commit ${p.commit}`}>{p.version ?? "older"}</td>
              <td class="num" data-of="up">{formatDuration(tick.value - Date.parse(p.startedAt))}</td><td class="num" data-of="beat">{formatDuration(Math.max(0, Date.parse(found.at) - Date.parse(p.beatAt)))} ago</td>
              <td class="num" data-of="deliveries">{p.deliveries.toLocaleString("en")}</td><td class="mono quiet" title={p.id}>{shortId(p.id)}</td></tr>
          ))}</tbody>
        </table>
      )}
      {found && found.extended > 0 && <p class="quiet">{found.extended.toLocaleString("en")} deliveries have been extended by their functions: they survive the death of a server.</p>}
      {found && found.servers.length > 1 && new Set(found.servers.map((p) => p.version)).size > 1 && <p class="warning">The servers have several versions: this is fine during an update.</p>}
      {found && <h2 class="gap">Stranded runs</h2>}
      {found && found.stranded.length === 0 && <p class="quiet">No run is stranded.</p>}
      {found && found.stranded.length > 0 && (
        <table class="list">
          <thead><tr><th>Run</th><th>Project</th><th>Workflow</th><th>Why</th><th class="num">Since</th><th class="num">Woken</th></tr></thead>
          <tbody>{found.stranded.map((r) => (
            <tr key={r.runId}><td>{session.value?.projects.some((p) => p.project === r.project)
              ? <a class="mono" href={pathOf(base, r.project, "runs", r.runId)}>{shortId(r.runId)}</a> : <span class="mono" title={r.runId}>{shortId(r.runId)}</span>}</td>
              <td>{r.project}</td><td class="strong"><Name of={r.workflow} /></td><td>{r.reason}</td><td class="num" data-of="since"><Age at={r.since} /></td><td class="num" data-of="woken">{r.wakes}</td></tr>
          ))}</tbody>
        </table>
      )}
      {found?.moreStranded && <p class="quiet">More runs are stranded: the first {found.stranded.length} are shown. The metric stepwell_runs_stranded counts all.</p>}
    </main>
  );
}
