// What one can do with a schedule. Each form says the same as a request and as a command.
import { useSignal } from "@preact/signals";
import type { Schedule, ScheduleSpec } from "../api.gen";
import { clock } from "../clock";
import { attributesIn, attributesOf } from "../lib/filter";
import { withValue } from "../lib/jsontext";
import { putCommand } from "../lib/schedule";
import { quote } from "../lib/shell";
import { Act, type Form } from "../parts/act";
import { Editor, problemIn } from "../parts/editor";

interface Props extends Form {
  name: string;
}

// about returns what a request says about a schedule.
const about = ({ name }: Props) => ({ path: { name } });

export function Trigger(p: Props) {
  return (
    <Act {...p} operation="POST /v1/schedules/{name}/trigger" title={`Start a run of ${p.name} now`} button="Start a run" request={about(p)} cli={`stepwell schedules trigger ${quote(p.name)}`}>
      <p>The ticks of the schedule stay as they are. It is refused while the last run has not ended, unless the overlap is cancel or allow.</p>
    </Act>
  );
}

export function Pause(p: Props) {
  const note = useSignal("");
  return (
    <Act {...p} operation="POST /v1/schedules/{name}/pause" title={`Pause ${p.name}`} button="Pause it" request={{ ...about(p), body: note.value ? { note: note.value } : {} }}
      cli={`stepwell schedules pause ${quote(p.name)}${note.value ? ` --note ${quote(note.value)}` : ""}`}>
      <p>Ticks of the pause are missed, and not caught up. Runs that have started go on.</p>
      <label>Why, for those who wonder<input name="note" value={note.value} maxLength={1024} onInput={(e) => (note.value = e.currentTarget.value)} /></label>
    </Act>
  );
}

export function Resume(p: Props) {
  return (
    <Act {...p} operation="POST /v1/schedules/{name}/resume" title={`Resume ${p.name}`} button="Resume it" request={about(p)} cli={`stepwell schedules resume ${quote(p.name)}`}>
      <p>It goes on with its next tick. A backfill starts the runs of the pause, if they are wanted.</p>
    </Act>
  );
}

const day = 86_400_000;

// atSecond returns a time as people type it.
function atSecond(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
}

export function Backfill({ overlap, ...p }: Props & { overlap: Schedule["overlap"] }) {
  const now = useSignal(clock.now()).value;
  const from = useSignal(atSecond(now - day));
  const to = useSignal(atSecond(now));
  const repeat = useSignal(false);
  const body = { from: from.value, to: to.value, ...(repeat.value && { repeat: true }) };
  const wrong = [from.value, to.value].some((t) => Number.isNaN(Date.parse(t)));
  return (
    <Act {...p} operation="POST /v1/schedules/{name}/backfill" title={`Backfill ${p.name}`} button="Start the runs" request={{ ...about(p), body }}
      blocked={wrong ? "Write times as 2026-11-22T00:00:00Z." : ""}
      cli={`stepwell schedules backfill ${quote(p.name)} --from ${quote(from.value)} --to ${quote(to.value)}${repeat.value ? " --repeat" : ""}`}>
      <p>It starts a run for each tick of this span, 1,000 at most{overlap === "allow" ? ", all at once" : ", one after the other"}.</p>
      <label>From<input name="from" value={from.value} spellcheck={false} onInput={(e) => (from.value = e.currentTarget.value.trim())} /></label>
      <label>To<input name="to" value={to.value} spellcheck={false} onInput={(e) => (to.value = e.currentTarget.value.trim())} /></label>
      <label class="check"><input type="checkbox" checked={repeat.value} onChange={(e) => (repeat.value = e.currentTarget.checked)} />Repeat ticks that have started a run before</label>
    </Act>
  );
}

export function EndBackfill(p: Props) {
  return (
    <Act {...p} operation="DELETE /v1/schedules/{name}/backfill" title={`End the backfill of ${p.name}`} button="End it" danger request={about(p)} cli={`stepwell schedules backfill ${quote(p.name)} --end`}>
      <p>No further run is started for ticks of the past. Runs that have started go on.</p>
    </Act>
  );
}

export function DeleteSchedule(p: Props) {
  return (
    <Act {...p} operation="DELETE /v1/schedules/{name}" title={`Delete ${p.name}`} button="Delete it" danger request={about(p)} cli={`stepwell schedules remove ${quote(p.name)}`}>
      <p>The schedule and the list of its ticks are deleted. Its runs stay, and go on. This cannot be undone.</p>
    </Act>
  );
}

// fields are the texts of the form; an empty one is the default.
const fields = ["workflow", "cron", "every", "timeZone", "from", "until", "deployment", "timeout", "catchUpWindow", "jitter"] as const;

interface PutProps {
  // The schedule that is changed; a new one if there is none.
  of?: Schedule;
  input?: string;
  done: (name: string) => void;
  close: () => void;
}

// PutSchedule is the form that creates a schedule, or replaces one.
export function PutSchedule({ of, input = "", done, close }: PutProps) {
  const form = useSignal({
    name: of?.name ?? "", overlap: of?.overlap ?? "skip", catchUp: of?.catchUp ?? "latest", input,
    attributes: attributesOf(of?.attributes),
    ...Object.fromEntries(fields.map((f) => [f, of?.[f] ?? ""])) as Record<(typeof fields)[number], string>,
  });
  const f = form.value;
  const set = (change: Partial<typeof f>) => (form.value = { ...form.value, ...change });
  const { attributes, problem } = attributesIn(f.attributes);
  const spec: ScheduleSpec = {
    ...Object.fromEntries(fields.filter((k) => f[k] !== "").map((k) => [k, f[k]])), workflow: f.workflow,
    ...(Object.keys(attributes).length > 0 && { attributes }), overlap: f.overlap, catchUp: f.catchUp,
  };
  const wrong = f.input.trim() === "" ? "" : problemIn(f.input);
  const given = wrong ? "" : f.input.trim();
  const text = given ? withValue(spec, "input", given) : JSON.stringify(spec);
  const name = f.name || "NAME";
  const blocked = f.name === "" ? "The name is missing." : f.workflow === "" ? "The workflow is missing."
    : f.cron === "" && f.every === "" ? "Say when it ticks." : wrong ? "The input is not valid JSON." : problem;
  const field = (name: "name" | "attributes" | (typeof fields)[number], label: string, hint: string) => (
    <label>{label}<input name={name} value={f[name]} placeholder={hint} disabled={name === "name" && of !== undefined} autocomplete="off" spellcheck={false}
      onInput={(e) => set({ [name]: e.currentTarget.value })} /></label>
  );
  return (
    <Act operation="PUT /v1/schedules/{name}" request={{ path: { name }, text }} title={of ? `Edit ${of.name}` : "New schedule"} button={of ? "Change it" : "Create it"}
      cli={putCommand(name, spec, given)} done={() => done(f.name)} close={close} blocked={blocked}>
      <div class="pair">
        {field("name", "Name", "nightly")}
        {field("workflow", "Workflow", "report")}
        {field("cron", "Cron expression", "30 2 * * MON-FRI")}
        {field("timeZone", "Its time zone", "UTC")}
        {field("every", "Or every", "15m")}
        <label>While the last run has not ended<select name="overlap" value={f.overlap} onChange={(e) => set({ overlap: e.currentTarget.value as Schedule["overlap"] })}>
          <option value="skip">skip the tick</option><option value="wait">wait for its end, one tick</option><option value="waitAll">wait for its end, all ticks</option>
          <option value="cancel">cancel it</option><option value="allow">start another</option></select></label>
      </div>
      <Editor label="Input of the runs: any JSON, or nothing" optional text={f.input} change={(input) => set({ input })} />
      <details><summary>More</summary>
        <div class="pair">
          {field("deployment", "Deployment", "latest")}
          {field("attributes", "Attributes", "customer=7 tier=gold")}
          {field("timeout", "Timeout of a run", "none")}
          {field("from", "Ticks from", "now")}
          {field("until", "Ticks until", "for ever")}
          {field("jitter", "Starts are spread over", "none")}
          <label>Late ticks start<select name="catchUp" value={f.catchUp} onChange={(e) => set({ catchUp: e.currentTarget.value as Schedule["catchUp"] })}>
            <option value="latest">a run for the latest</option><option value="all">a run each</option></select></label>
          {field("catchUpWindow", "A tick may be late by", "24h")}
        </div>
      </details>
    </Act>
  );
}
