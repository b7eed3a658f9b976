// Timeline of a run.
import type { Run } from "../api.gen";

export function Timeline({ run }: { run: Run }) {
  return <p class="quiet">{run.id}</p>;
}
