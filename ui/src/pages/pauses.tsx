// Pauses of runs, workflows and deployments: what is paused, by whom and why, and the forms that begin and end a pause.
import { useSignal } from "@preact/signals";
import type { Pause, PauseKind } from "../api.gen";
import { call } from "../api";
import { titleOf } from "../lib/names";
import { quote } from "../lib/shell";
import { project } from "../location";
import { Act, type Form } from "../parts/act";
import { Gated } from "../parts/gated";
import { Status } from "../parts/icon";
import { Age, Clock } from "../parts/time";
import { useResource } from "../resource";

// Subject is what can be paused: a run or a deployment by its ID, or a workflow by its name.
export interface Subject {
  kind: PauseKind;
  name: string;
}

// usePauses reads the pauses of the project. Its of is undefined until they are read, and null for what is not paused.
export function usePauses() {
  const { data, refresh } = useResource((signal) => call(project.value, "GET /v1/pauses", { signal }), [project.value], { on: ["settings"] });
  const of = (kind: PauseKind, name: string) => data.value?.data && (data.value.data.find((p) => p.kind === kind && p.name === name) ?? null);
  return { of, refresh };
}

interface PauseButtonProps extends Subject {
  // The pause that there is; null for none, and undefined while that is not known.
  pause: Pause | null | undefined;
  done: () => void;
}

// PauseButton pauses something, or resumes it.
export function PauseButton(p: PauseButtonProps) {
  const open = useSignal(false);
  return (
    <>
      <OpenPause pause={p.pause} act={() => (open.value = true)} />
      {open.value && <PauseForm {...p} close={() => (open.value = false)} />}
    </>
  );
}

// OpenPause is the button alone, for lists. Its name is that of what it is about.
export function OpenPause({ pause, name, act }: { pause: Pause | null | undefined; name?: string; act: () => void }) {
  const text = pause ? "Resume …" : "Pause …";
  return <Gated permission="write" off={pause === undefined ? "Reading what is paused …" : ""} label={name && `${text} ${name}`} act={act}>{text}</Gated>;
}

// PauseForm pauses something that is not paused, and resumes what is.
export function PauseForm({ pause, ...form }: PauseButtonProps & Form) {
  return pause ? <EndPause {...form} /> : <BeginPause {...form} />;
}

// PausedSince says of what is paused since when, by whom and why.
export function PausedSince({ of: p }: { of: Pause }) {
  return <><Status look="waiting" word="paused" /> since <Clock at={p.pausedAt} /> (<Age at={p.pausedAt} />) by {p.pausedBy}{p.note && `: ${p.note}`}</>;
}

type Props = Subject & Form;

// command returns what the CLI calls it.
const command = (verb: string, { kind, name }: Subject) => `stepwell ${kind}s ${verb} ${quote(name)}`;

const titled = ({ kind, name }: Subject) => kind === "run" ? "this run" : `${kind} ${titleOf(name)}`;

const holds: Record<PauseKind, string> = {
  run: "Its function and its steps are not called until it is resumed. Its children go on.",
  workflow: "Nothing of its runs is called, at any deployment, until it is resumed. Runs that are started meanwhile wait.",
  deployment: "Nothing is called there until it is resumed, also no step of other deployments’ runs.",
};

function BeginPause(p: Props) {
  const note = useSignal("");
  const path = { kind: p.kind, name: p.name };
  return (
    <Act {...p} operation="PUT /v1/pauses/{kind}/{name}" title={`Pause ${titled(p)}`} button="Pause it" request={{ path, body: note.value ? { note: note.value } : {} }}
      cli={`${command("pause", p)}${note.value ? ` --note ${quote(note.value)}` : ""}`}>
      <p>{holds[p.kind]} Calls under way end, and are recorded. Nothing is lost. Deadlines and cancellations go on.</p>
      <label>Why, for those who wonder<input name="note" value={note.value} maxLength={1024} onInput={(e) => (note.value = e.currentTarget.value)} /></label>
    </Act>
  );
}

// EndPause is the form that resumes something.
export function EndPause(p: Props) {
  return (
    <Act {...p} operation="DELETE /v1/pauses/{kind}/{name}" title={`Resume ${titled(p)}`} button="Resume it" request={{ path: { kind: p.kind, name: p.name } }} cli={command("resume", p)}>
      <p>What waits is due at once, and called as fast as slots are free. What is paused in another way as well goes on waiting.</p>
    </Act>
  );
}
