// What went into a run and what came out.
import type { Run } from "../api.gen";
import { call } from "../api";
import { hasEnded } from "../lib/status";
import { project } from "../location";
import { Loading, Trouble } from "../parts/notice";
import { Payload } from "../parts/payload";
import { useResource } from "../resource";

export function Data({ run }: { run: Run }) {
  const end = useResource((signal) => call(project.value, "GET /v1/runs/{id}/events", {
    path: { id: run.id }, query: { type: ["run_completed", "run_failed"], order: "desc", limit: 1, payloads: false }, signal,
  }), [run.id, run.status]);
  const seq = end.data.value?.data[0]?.seq;
  return (
    <div class="data">
      <section><h2>Input</h2><Payload project={project.value} run={run.id} seq={1} /></section>
      <section><h2>{run.status === "failed" ? "Error" : "Output"}</h2>
        {end.problem.value && <Trouble problem={end.problem.value} retry={end.refresh} />}
        {seq ? <Payload project={project.value} run={run.id} seq={seq} />
          : !hasEnded(run) ? <p class="quiet">The run has not ended.</p>
            : run.status === "cancelled" ? <p class="quiet">A cancelled run has no output.</p> : <Loading what="the end" />}
      </section>
    </div>
  );
}
