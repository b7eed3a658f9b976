// The name of a workflow or a step, as its author wrote it; the whole name is its title.
import { titleOf } from "../lib/names";

export function Name({ of }: { of: string }) {
  const title = titleOf(of);
  return title === of ? <>{of}</> : <span title={of}>{title}</span>;
}
