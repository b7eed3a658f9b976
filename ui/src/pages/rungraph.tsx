// The graph of a flow's run, with how far each step is.
import type { Run } from "../api.gen";
import { call } from "../api";
import { hasEnded } from "../lib/status";
import { href, project } from "../location";
import { Graph } from "../parts/graph";
import { Loading, Trouble } from "../parts/notice";
import { useResource } from "../resource";

// A run whose log is longer is not read with every event.
const longLog = 2000;
const pollEvery = 5000;

export function RunGraph({ run }: { run: Run }) {
  const ended = hasEnded(run);
  const read = useResource((signal) => call(project.value, "GET /v1/runs/{id}/graph", { path: { id: run.id }, signal }), [project.value, run.id],
    ended ? 0 : pollEvery, run.lastSeq < longLog || ended ? run.lastSeq : 0);
  const graph = read.data.value;
  return (
    <>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!graph && !read.problem.value && <Loading what="the graph" />}
      {graph && <Graph graph={graph} of={(s) => href(["runs", run.id, "log"], { of: s.id })} />}
    </>
  );
}
