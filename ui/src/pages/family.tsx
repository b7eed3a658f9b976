// Family of a run.
import type { Run } from "../api.gen";

export function Family({ run }: { run: Run }) {
  return <p class="quiet">{run.id}</p>;
}
