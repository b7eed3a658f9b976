// The hooks and waits of a run.
import type { Run } from "../api.gen";
import { call } from "../api";
import { titleOfHook, titleOfWait } from "../lib/names";
import { stateOfHook, stateOfWait } from "../lib/status";
import { href, project } from "../location";
import { Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";

export function Hooks({ run }: { run: Run }) {
  const lists = useResource(async (signal) => {
    const r = { path: { id: run.id }, query: { limit: 200 }, signal };
    const [hooks, waits] = await Promise.all([
      call(project.value, "GET /v1/runs/{id}/hooks", r), call(project.value, "GET /v1/runs/{id}/waits", r),
    ]);
    return { hooks: hooks.data, waits: waits.data, more: hooks.cursor !== undefined || waits.cursor !== undefined };
  }, [run.id], { version: run.lastSeq });
  const all = lists.data.value;
  const trouble = lists.problem.value && <Trouble problem={lists.problem.value} retry={lists.refresh} />;
  if (!all) return trouble ?? <Loading what="hooks and waits" />;
  if (all.hooks.length + all.waits.length === 0) {
    return <Empty title="This run has no hooks and no waits"><p>A hook waits for somebody outside, a wait for a time.</p></Empty>;
  }
  return (
    <>
      {trouble}
      <table class="list">
        <thead><tr><th>Status</th><th>Hook or wait</th><th>For</th><th>Token</th><th class="num">Opened</th></tr></thead>
        <tbody>
          {all.hooks.map((h) => (
            <tr key={`h${h.id}`}><td><Status {...stateOfHook(h)} /></td>
              <td><a class="strong" href={href(["runs", run.id, "log"], { of: h.id })} title={h.id}>{titleOfHook(h)}</a></td>
              <td>{h.signal ? <>signal {h.signal}{h.condition && <span class="mono quiet"> if {h.condition}</span>}</> : h.webhook ? "webhook" : "a payload"}</td>
              <td class="mono">{h.token ? <>{h.token}<Copy text={h.token} what="the token" /></> : <span class="quiet">–</span>}</td>
              <td class="num"><Age at={h.createdAt} /></td></tr>
          ))}
          {all.waits.map((w) => (
            <tr key={`w${w.id}`}><td><Status {...stateOfWait(w)} /></td>
              <td><a class="strong" href={href(["runs", run.id, "log"], { of: w.id })} title={w.id}>{titleOfWait(w)}</a></td>
              <td>{w.resumeAt ? <>until <Clock at={w.resumeAt} /> <span class="quiet"><Age at={w.resumeAt} /></span></> : "–"}</td>
              <td class="quiet">–</td><td class="num"><Age at={w.createdAt} /></td></tr>
          ))}
        </tbody>
      </table>
      {all.more && <p class="quiet">The first 200 of each are shown: <code>stepwell hooks list --run {run.id}</code> lists all.</p>}
    </>
  );
}
