// The list of shortcuts.
import { letters } from "../settings";
import { helpOpen } from "../shortcuts";
import { useModal } from "./dialog";

const keys: Array<[string, string]> = [
  ["j  k", "next, previous row"], ["Enter", "open the run"], ["/", "filter"], ["Ctrl K", "go to a run, page or action"], ["x  X", "select the row, or all up to it"], ["g o  g r  g w  g n  g f", "overview, runs, workflows, flows, failures"],
  ["g h  g q  g c  g t  g b", "waiting, queue, schedules, triggers, collections"],
  ["g l  g d  g s  g a", "limits, deployments, servers, access"],
  ["t  l  d  s  h  f  m", "of a run: timeline, log, data, steps, hooks, family, messages"],
  ["+  −  0  .", "timeline: zoom, show all, follow"], ["e  n", "timeline: next failure, what it waits for"],
  ["u", "from a run to the list"], ["p", "pause what changes by itself"], ["Esc", "close"], ["?", "this list"],
];

export function Help() {
  const { modal, close } = useModal(() => (helpOpen.value = false));
  return (
    <dialog {...modal} aria-labelledby="help-title">
      <form onSubmit={(e) => { e.preventDefault(); close(); }}>
        <h2 id="help-title">Shortcuts</h2>
        <dl class="keys">{keys.map(([k, what]) => <div><dt>{k.split("  ").map((one) => <kbd>{one}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
        <label class="check"><input type="checkbox" checked={letters.value === "on"}
          onChange={(e) => (letters.value = e.currentTarget.checked ? "on" : "off")} />Single letters are shortcuts</label>
        <div class="buttons"><button type="submit">Close</button></div>
      </form>
    </dialog>
  );
}
