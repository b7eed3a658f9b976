// The text of an error with its lines. In a stack, the frames of the user's own code stand out.
import { useSignal } from "@preact/signals";
import { isStack, linesOf } from "../lib/stack";

const few = { lines: 12, characters: 1200 }; // that are shown at first

export function Lines({ text, label }: { text: string; label: string }) {
  const all = useSignal(false);
  if (!text) return null;
  const stack = isStack(text);
  const lines = linesOf(text);
  const folds = lines.length > few.lines + 2 || text.length > few.characters + 200;
  const shown = all.value || !folds ? lines : linesOf(text.slice(0, few.characters)).slice(0, few.lines);
  return (
    <div class="lines">
      <pre class={stack ? "stack" : ""} tabIndex={stack ? 0 : undefined} role={stack ? "group" : undefined} aria-label={stack ? label : undefined}>
        {shown.map((l) => <span class={l.own ? "" : "quiet"}>{l.text}{"\n"}</span>)}
      </pre>
      {folds && <button type="button" class="link" aria-expanded={all.value} onClick={() => (all.value = !all.value)}>
        {all.value ? "Show less" : `Show all ${lines.length > 1 ? `${lines.length.toLocaleString("en")} lines` : `${text.length.toLocaleString("en")} characters`}`}</button>}
    </div>
  );
}
