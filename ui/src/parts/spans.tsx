// The stretch of time that a page is about, in its address.
import { spanOf, spans } from "../lib/trend";
import { go, href, search } from "../location";

// Spans chooses the stretch of time of the page with the segments.
export function Spans({ to }: { to: string[] }) {
  const chosen = spanOf(search.value.get("in"));
  return (
    <div class="segmented" role="group" aria-label="Time">
      {spans.map((s) => (
        <button type="button" aria-pressed={s === chosen} onClick={() => go(href(to, { in: s.name }), "replace")}>{s.name}</button>
      ))}
    </div>
  );
}
