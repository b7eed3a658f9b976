// Reads one run. A run that collects starts is not there yet, which pages treat as a problem.
import { call } from "../api";
import type { Run } from "../api.gen";
import { Problem } from "../lib/problem";
import { project } from "../location";

export async function readRun(id: string, signal: AbortSignal): Promise<Run> {
  const answer = await call(project.value, "GET /v1/runs/{id}", { path: { id }, query: { payloads: false }, signal });
  if ("dueAt" in answer) {
    throw new Problem(404, "run_collecting", `It collects starts until ${answer.dueAt}: it has ${answer.count}.`);
  }
  return answer;
}
