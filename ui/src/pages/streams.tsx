// Streams of a run.
import type { Run } from "../api.gen";

export function Streams({ run }: { run: Run }) {
  return <p class="quiet">{run.id}</p>;
}
