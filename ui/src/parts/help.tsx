// The list of shortcuts.
import { letters } from "../settings";
import { helpOpen } from "../shortcuts";
import { useModal } from "./dialog";
import { places } from "./frame";

type Keys = Array<[keys: string, what: string]>;

// groups are the shortcuts by where they work. Keys that are pressed one after the other are one word.
const groups: Array<[title: string, keys: Keys]> = [
  ["Everywhere", [["Ctrl K", "go to a run, page or action"], ["/", "filter"], ["p", "pause what changes by itself"], ["Esc", "close"], ["?", "this list"]]],
  ["Lists", [["j", "next row"], ["k", "previous row"], ["Enter", "open the run"], ["x", "select the row"], ["X", "select all up to it"]]],
  ["A run", [["t", "timeline"], ["l", "log"], ["d", "data"], ["s", "steps"], ["h", "hooks and waits"], ["f", "family"], ["m", "messages"], ["u", "back to the list"], ["[", "previous run of the list"], ["]", "next run of the list"]]],
  ["Timeline", [["+", "zoom in"], ["−", "zoom out"], ["0", "show all"], [".", "follow"], ["e", "next failure"], ["n", "what it waits for"]]],
];

export function Help() {
  const { modal, close } = useModal(() => (helpOpen.value = false));
  const pages: Keys = places.map((p) => [p.key, p.name]);
  return (
    <dialog {...modal} class="wide" aria-labelledby="help-title">
      <form onSubmit={(e) => { e.preventDefault(); close(); }}>
        <h2 id="help-title">Shortcuts</h2>
        <div class="shortcuts">
          {([["Pages", pages], ...groups] as typeof groups).map(([title, keys]) => (
            <section><h3>{title}</h3>
              <dl class="keys">{keys.map(([k, what]) => <div><dt><kbd>{k}</kbd></dt><dd>{what}</dd></div>)}</dl></section>
          ))}
        </div>
        <label class="check"><input type="checkbox" checked={letters.value === "on"}
          onChange={(e) => (letters.value = e.currentTarget.checked ? "on" : "off")} />Single letters are shortcuts</label>
        <div class="buttons"><button type="submit">Close</button></div>
      </form>
    </dialog>
  );
}
