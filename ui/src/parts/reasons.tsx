// Why something starts no run, in the words of the server.
import type { StartReason } from "../api.gen";
import { shortId } from "../lib/path";
import type { Look } from "../lib/status";
import { href } from "../location";
import { Glyph } from "./icon";
import { Age } from "./time";

const looks: Record<string, Look> = { parked: "failed", refused: "failed", task_fails: "retrying" };

export function Reasons({ of, label }: { of: StartReason[] | undefined; label: string }) {
  if (!of?.length) return null;
  const shown = of.map((r) => looks[r.kind] ?? "waiting");
  return (
    <section class={`why ${shown.includes("failed") ? "blocked" : shown.includes("retrying") ? "retrying" : "quiet"}`} aria-label={label}>
      <ul>{of.map((r, i) => (
        <li key={r.kind}><p class="lead"><Glyph look={shown[i]!} /><span><Sentence text={r.text} run={r.runId} />
          {r.since && <span class="when"> · since <Age at={r.since} /></span>}{r.at && <span class="when"> · {r.kind === "collecting" ? "due" : "again"} <Age at={r.at} /></span>}
          {r.messageId && <> <a href={href(["queue"])}>Queue</a></>}</span></p></li>
      ))}</ul>
    </section>
  );
}

// Sentence begins a sentence of the server with a capital, and links the run that it names.
function Sentence({ text, run }: { text: string; run: string | undefined }) {
  const [before = "", after = ""] = run ? text.split(run) : [text];
  return <>{before.charAt(0).toUpperCase() + before.slice(1)}{run && <a class="mono" href={href(["runs", run])} title={run}>{shortId(run)}</a>}{after}.</>;
}
