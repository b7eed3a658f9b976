// What one can do with the runs that are selected, or with all that match.
import { useSignal } from "@preact/signals";
import type { Run } from "../api.gen";
import { canDo } from "../lib/bulk";
import { runs as inWords, type Count } from "../lib/counts";
import type { Filter } from "../lib/filter";
import { go, href } from "../location";
import { Copy } from "../parts/copy";
import { may, needs } from "../session";
import type { Action } from "../lib/bulk";
import type { Target } from "./bulk";

export interface SelectionProps {
  runs: Run[];
  // How many match; null if it is unknown yet.
  count: Count | null;
  filter: Filter;
  act: (action: Action, target: Target) => void;
  clear: () => void;
}

export function Selection({ runs, count, filter, act, clear }: SelectionProps) {
  const all = useSignal(false);
  const target: Target = all.value ? { filter } : { selected: runs };
  const button = (action: Action, text: string) => {
    const none = !all.value && !runs.some((r) => canDo(action, r.status));
    const why = !may("write") ? needs("write") : none ? `None of these can be ${action === "cancel" ? "cancelled: they have ended" : "rerun: they have not ended"}.` : "";
    return <button type="button" disabled={why !== ""} title={why} onClick={() => act(action, target)}>{text}</button>;
  };
  const two = runs.length === 2 && !all.value;
  return (
    <div class="selection" role="region" aria-label="Selected runs">
      <span role="status">{all.value && count ? inWords(count) : runs.length} selected</span>
      {count && (count.count > runs.length || count.atLeast) && <label class="check"><input type="checkbox" checked={all.value}
        onChange={(e) => (all.value = e.currentTarget.checked)} />{`or all ${inWords(count)} that match`}</label>}
      {button("cancel", "Cancel …")}
      {button("rerun", "Rerun …")}
      <button type="button" disabled={!two} title={two ? "" : "Select two runs."}
        onClick={() => go(href(["compare"], { a: runs[1]!.id, b: runs[0]!.id }))}>Compare</button>
      <Copy text={runs.map((r) => r.id).join("\n")} label="Copy IDs" what="the IDs" />
      <button type="button" onClick={clear}>Clear</button>
    </div>
  );
}
