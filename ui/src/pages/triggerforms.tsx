// What one can do with a trigger. Each form says the same as a request and as a command.
import { useSignal } from "@preact/signals";
import type { Trigger, TriggerSpec, TriggerStart } from "../api.gen";
import { attributesIn, attributesOf } from "../lib/filter";
import { withValue } from "../lib/jsontext";
import { quote } from "../lib/shell";
import { onOf, putCommand, waitsOf, type Waits } from "../lib/trigger";
import { Act, type Form } from "../parts/act";
import { Editor, problemIn } from "../parts/editor";

interface Props extends Form {
  name: string;
}

export function PauseTrigger({ name, ...form }: Props) {
  const note = useSignal("");
  return (
    <Act {...form} operation="POST /v1/triggers/{name}/pause" request={{ path: { name }, body: note.value ? { note: note.value } : {} }}
      title={`Pause ${name}`} button="Pause it" cli={`stepwell triggers pause ${quote(name)}${note.value ? ` --note ${quote(note.value)}` : ""}`}>
      <p>Events that come during the pause start nothing, later neither. Runs that have started go on.</p>
      <label>Why, for those who wonder<input name="note" value={note.value} maxLength={1024} onInput={(e) => (note.value = e.currentTarget.value)} /></label>
    </Act>
  );
}

export function ResumeTrigger({ name, ...form }: Props) {
  return (
    <Act {...form} operation="POST /v1/triggers/{name}/resume" request={{ path: { name } }} title={`Resume ${name}`} button="Resume it"
      cli={`stepwell triggers resume ${quote(name)}`}>
      <p>It goes on with the next event.</p>
    </Act>
  );
}

export function DeleteTrigger({ name, ...form }: Props) {
  return (
    <Act {...form} operation="DELETE /v1/triggers/{name}" request={{ path: { name } }} title={`Delete ${name}`} button="Delete it" danger
      cli={`stepwell triggers delete ${quote(name)}`}>
      <p>The trigger, its history and the URL of its webhook are deleted. Its runs stay, and go on. This cannot be undone.</p>
    </Act>
  );
}

// texts are the texts of a start that have fields of their own; an empty one is the default.
const texts = ["workflow", "deployment", "key", "idempotencyKey", "timeout", "delay", "priority"] as const;

interface PutProps {
  // The trigger that is changed; a new one if there is none.
  of?: Trigger;
  input?: string;
  done: (name: string) => void;
  close: () => void;
}

// restOf returns what the form has no fields for, as JSON; empty for nothing.
function restOf({ limits, debounce, batch }: Partial<TriggerStart>): string {
  const rest = { ...(limits?.length && { limits }), ...(debounce && { debounce }), ...(batch && { batch }) };
  return Object.keys(rest).length > 0 ? JSON.stringify(rest, null, 1) : "";
}

// PutTrigger is the form that creates a trigger, or replaces one.
export function PutTrigger({ of, input = "", done, close }: PutProps) {
  const start = of?.start;
  const form = useSignal({
    name: of?.name ?? "", ...waitsOf(of?.on ?? {}),
    onConflict: start?.onConflict ?? "reject", attributes: attributesOf(start?.attributes), input, rest: restOf(start ?? {}),
    ...Object.fromEntries(texts.map((f) => [f, start?.[f] ?? ""])) as Record<(typeof texts)[number], string>,
  });
  const f = form.value;
  const set = (change: Partial<typeof f>) => (form.value = { ...form.value, ...change });
  const { attributes, problem } = attributesIn(f.attributes);
  const wrong = [f.input, f.rest].some((text) => text.trim() !== "" && problemIn(text) !== "");
  const rest = wrong || f.rest.trim() === "" ? {} : JSON.parse(f.rest) as Partial<TriggerStart>;
  const spec: TriggerSpec = {
    on: onOf(f),
    start: {
      ...Object.fromEntries(texts.filter((k) => f[k] !== "").map((k) => [k, f[k]])), workflow: f.workflow,
      ...(f.key && f.onConflict === "join" && { onConflict: "join" }), ...(Object.keys(attributes).length > 0 && { attributes }), ...rest,
    },
  };
  const given = wrong ? "" : f.input.trim();
  const text = given ? withValue({ on: spec.on }, "start", withValue({ ...spec.start }, "input", given)) : JSON.stringify(spec);
  const blocked = f.name === "" ? "The name is missing." : f.kind !== "webhook" && f.source === "" ? "Say what it waits for."
    : f.workflow === "" ? "The workflow is missing." : wrong ? "The JSON is not valid." : problem;
  const field = (name: "name" | Exclude<keyof Waits, "kind"> | "attributes" | (typeof texts)[number], label: string, hint: string) => (
    <label>{label}<input name={name} value={f[name]} placeholder={hint} disabled={name === "name" && of !== undefined} autocomplete="off" spellcheck={false}
      onInput={(e) => set({ [name]: e.currentTarget.value })} /></label>
  );
  return (
    <Act operation="PUT /v1/triggers/{name}" request={{ path: { name: f.name || "NAME" }, text }} title={of ? `Edit ${of.name}` : "New trigger"}
      button={of ? "Change it" : "Create it"} cli={putCommand(f.name || "NAME", spec, given)} done={() => done(f.name)} close={close} blocked={blocked}>
      <div class="pair">
        {field("name", "Name", "paid")}
        {field("workflow", "Starts the workflow", "receipt")}
        <label>Waits for<select name="kind" value={f.kind} onChange={(e) => set({ kind: e.currentTarget.value as Waits["kind"] })}>
          <option value="signal">signals</option><option value="webhook">requests to a URL</option><option value="runEnded">ends of runs</option></select></label>
        {f.kind === "signal" && field("source", "Name of the signals", "order.paid")}
        {f.kind === "runEnded" && <>{field("source", "Their workflow", "order")}{field("statuses", "That end as", "completed, failed, cancelled")}</>}
        {f.kind === "webhook" && <>{field("verify", "Signed by", "nobody; or github, stripe, slack, standard, generic")}{f.verify && field("secret", "With the secret", "its name")}
          {field("respond", "The sender waits for the run's response", "not at all; or a time such as 10s")}</>}
        {field("condition", "If this is true", "data.amount > 100")}
      </div>
      <Editor label="Input of the runs instead of the event: JSON with ${data.…}, or nothing" optional text={f.input} change={(input) => set({ input })} />
      <details><summary>More</summary>
        <div class="pair">
          {field("deployment", "Deployment", "latest")}
          {field("attributes", "Attributes", "customer=${data.customer}")}
          {field("key", "Key: one run at a time has it", "none")}
          <label>If a run has the key<select name="onConflict" value={f.onConflict} onChange={(e) => set({ onConflict: e.currentTarget.value as "reject" | "join" })}>
            <option value="reject">the event is refused</option><option value="join">the event is done</option></select></label>
          {field("idempotencyKey", "One run per", "event")}
          {field("timeout", "Timeout of a run", "none")}
          {field("delay", "Starts after", "at once")}
          {field("priority", "Priority", "none")}
        </div>
        <Editor label="Limits, debounce and batch, as in the API" optional text={f.rest} change={(rest) => set({ rest })} />
      </details>
    </Act>
  );
}
