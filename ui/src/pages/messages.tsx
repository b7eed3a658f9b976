// Messages of a run.
import type { Run } from "../api.gen";

export function Messages({ run }: { run: Run }) {
  return <p class="quiet">{run.id}</p>;
}
