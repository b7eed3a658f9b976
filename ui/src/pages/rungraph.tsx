// The graph of a flow's run: how far each step is, and why it is not done.
import type { Explanation, Run } from "../api.gen";
import { call } from "../api";
import { reasonsOf } from "../lib/graph";
import { hasEnded } from "../lib/status";
import { href, project } from "../location";
import { Graph } from "../parts/graph";
import { Loading, Trouble } from "../parts/notice";
import { useResource } from "../resource";

// A run whose log is longer is not read with every event.
const longLog = 2000;

export function RunGraph({ run, why }: { run: Run; why: Explanation | null }) {
  const ended = hasEnded(run);
  const follows = run.lastSeq < longLog;
  const read = useResource((signal) => call(project.value, "GET /v1/runs/{id}/graph", { path: { id: run.id }, signal }), [project.value, run.id],
    { on: ended ? [] : ["runs", "queue"], version: follows || ended ? run.lastSeq : 0 });
  const graph = read.data.value;
  return (
    <>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!graph && !read.problem.value && <Loading what="the graph" />}
      {graph && <Graph graph={graph} of={(s) => href(["runs", run.id, "log"], { of: s.id })} reasons={reasonsOf(ended ? [] : why?.reasons ?? [])} />}
    </>
  );
}
