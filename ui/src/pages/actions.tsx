// What one can do with a run. What the role may not do is shown, and says which role may.
import { useSignal } from "@preact/signals";
import type { Explanation, Hook, Run } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { fieldsOf, fill, type Field, type Typed } from "../lib/form";
import { member, parseJson, withValue, writeJson } from "../lib/jsontext";
import { Problem } from "../lib/problem";
import { curl, quote } from "../lib/shell";
import { hasEnded } from "../lib/status";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Editor, problemIn } from "../parts/editor";
import { FormFields } from "../parts/form";
import { Gated, useId } from "../parts/gated";
import { lazyPart } from "../parts/lazy";
import { Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { may, needs } from "../session";
import { PauseButton } from "./pauses";
import type { StartProps } from "./start";

const Start = lazyPart<StartProps>("the form", async () => (await import("./tools")).Start);

type Open = "" | "cancel" | "rerun" | "fork" | "start";

// Actions are what one can do with the run as it is now. What helps a run that waits is in the box that says why.
export function Actions({ run, why, done }: { run: Run; why: Explanation | null; done: () => void }) {
  const open = useSignal<Open>("");
  const close = () => (open.value = "");
  const ended = hasEnded(run);
  const show = (name: Open) => () => (open.value = name);
  return (
    <div class="actions">
      {(ended || run.driver === "server") && <Gated permission="write" act={show("rerun")}>Rerun …</Gated>}
      {run.driver === "server" && (run.status === "failed" || run.status === "cancelled") && <Gated permission="write" act={show("fork")}>Go on from the failure …</Gated>}
      {!ended && !pausedIn(why, run.id) && <PauseButton kind="run" name={run.id} pause={null} done={done} />}
      {!ended && <Gated permission="write" act={show("cancel")}>Cancel …</Gated>}
      {open.value === "cancel" && <Cancel run={run} done={done} close={close} />}
      {open.value === "rerun" && <Rerun run={run} close={close} change={show("start")} />}
      {open.value === "fork" && <Fork run={run} close={close} />}
      {open.value === "start" && <Start like={run} close={close} />}
    </div>
  );
}

// pausedIn reports whether the run itself is paused. The box that says so resumes it.
function pausedIn(why: Explanation | null, id: string): boolean {
  return why !== null && why.reasons.some((r) => r.pause?.kind === "run" && r.pause.name === id);
}

// Retry makes a failed message due at once.
export function Retry({ id, off = "", done }: { id: string; off?: string; done: () => void }) {
  const busy = useSignal(false);
  const problem = useSignal<Problem | null>(null);
  const act = async () => {
    busy.value = true;
    problem.value = null;
    try {
      await call(project.value, "POST /v1/messages/{id}/retry", { path: { id } });
    } catch (err) {
      const p = err instanceof Problem ? err : new Problem(-1, "page", String(err));
      if (p.status !== 404) problem.value = p; // otherwise it was delivered meanwhile
    }
    busy.value = false;
    done();
  };
  return (
    <>
      <Gated permission="write" off={busy.value ? "Working …" : off} act={() => void act()}>Retry now</Gated>
      {problem.value && <Trouble problem={problem.value} />}
    </>
  );
}

export function Discard({ id, done, close }: { id: string; done: () => void; close: () => void }) {
  const path = { id };
  const act = async () => {
    await call(project.value, "DELETE /v1/messages/{id}", { path });
    done();
  };
  return (
    <Dialog title="Discard this message" button="Discard the message" danger act={act} close={close}>
      <p>It is not delivered any more. A run that cannot go on without it gets a new one within about a minute.</p>
      <p class="mono">{id}</p>
      <Commands cli={`stepwell messages discard ${id}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/messages/{id}", { path }))} />
    </Dialog>
  );
}

export interface DeployProps {
  id: string;
  // Whether the deployment is known not to be registered.
  missing?: boolean;
  done: () => void;
  close: () => void;
}

// Deploy registers a deployment, or moves it. What else is registered with it stays.
export function Deploy({ id, missing, done, close }: DeployProps) {
  const path = { id };
  const details = useResource(async (signal) => missing ? null : call(project.value, "GET /v1/deployments/{id}", { path, signal }), [id]);
  const typed = useSignal<string | null>(null);
  const url = typed.value ?? details.data.value?.url ?? "";
  const body = { url };
  const act = async () => {
    await call(project.value, "PUT /v1/deployments/{id}", { path, body });
    done();
  };
  return (
    <Dialog title={`Where is deployment ${id}?`} button="Register" act={act} close={close} blocked={url ? "" : "The URL is missing."}>
      {details.problem.value && <Trouble problem={details.problem.value} retry={details.refresh} />}
      <p>Calls that failed are made at once, also if the URL stays the same.</p>
      <label>URL of its function<input type="url" value={url} placeholder="http://127.0.0.1:3000" onInput={(e) => (typed.value = e.currentTarget.value.trim())} /></label>
      <Commands cli={`stepwell deployments add ${quote(id)} ${quote(url)}`} curl={curl(server, "PUT", addressOf("PUT /v1/deployments/{id}", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

interface Props {
  run: Run;
  done: () => void;
  close: () => void;
}

export function Cancel({ run, done, close }: Props) {
  const reason = useSignal("");
  const grace = useSignal("");
  const body = { ...(reason.value && { reason: reason.value }), ...(grace.value && { grace: grace.value }) };
  const path = { id: run.id };
  const act = async () => {
    await call(project.value, "POST /v1/runs/{id}/cancel", { path, body });
    done();
  };
  const flags = (reason.value ? ` --reason ${quote(reason.value)}` : "") + (grace.value ? ` --grace ${quote(grace.value)}` : "");
  return (
    <Dialog title="Cancel this run" button="Cancel the run" danger act={act} close={close}>
      <p>The run ends at once, and so do its children. This cannot be undone.</p>
      <label>Reason, kept with the run<input value={reason.value} maxLength={1024} onInput={(e) => (reason.value = e.currentTarget.value)} /></label>
      {run.driver === "server" && <label>Grace, such as 1m: its function may undo what it has done
        <input value={grace.value} placeholder="none" onInput={(e) => (grace.value = e.currentTarget.value.trim())} /></label>}
      <Commands cli={`stepwell runs cancel ${run.id}${flags}`} curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/cancel", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

function Rerun({ run, close, change }: Omit<Props, "done"> & { change: () => void }) {
  const deployment = useSignal("");
  const key = useId();
  const body = { idempotencyKey: key, ...(deployment.value && { deployment: deployment.value }) };
  const path = { id: run.id };
  const act = async () => {
    const started = await call(project.value, "POST /v1/runs/{id}/rerun", { path, body });
    go(href(["runs", started.id]));
  };
  return (
    <Dialog title="Start a copy of this run" button="Start the copy" act={act} close={close}>
      <p>The copy has the same workflow, input, key and first attributes. This run stays as it is.</p>
      {run.driver === "server" && <p><button type="button" disabled={!may("read")} title={may("read") ? "" : needs("read")} onClick={change}>With changes …</button></p>}
      <label>Deployment<input value={deployment.value} placeholder={run.deployment} onInput={(e) => (deployment.value = e.currentTarget.value.trim())} /></label>
      <Commands cli={`stepwell runs rerun ${run.id}${deployment.value ? ` --deployment ${quote(deployment.value)}` : ""} --idempotency-key ${key}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/rerun", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

// Fork starts a run that goes on from an event of this one, or from its failure.
export function Fork({ run, at, close }: Omit<Props, "done"> & { at?: number }) {
  const deployment = useSignal("");
  const key = useId();
  const body = { idempotencyKey: key, ...(at ? { at } : { from: "failure" as const }), ...(deployment.value && { deployment: deployment.value }) };
  const path = { id: run.id };
  const act = async () => {
    const started = await call(project.value, "POST /v1/runs/{id}/rerun", { path, body });
    go(href(["runs", started.id]));
  };
  return (
    <Dialog title={at ? `Go on from event ${at}` : "Go on from the failure"} button="Start the fork" act={act} close={close}>
      <p>A new run keeps {at ? (at === 1 ? "the first event" : `the first ${at} events`) : "what was finished before the step that failed"}, and goes on from there. What is finished is not done again. Steps that are open there are executed again, and child runs started again as new ones. This run stays as it is.</p>
      <label>Deployment<input value={deployment.value} placeholder={run.deployment} onInput={(e) => (deployment.value = e.currentTarget.value.trim())} /></label>
      <Commands cli={`stepwell runs fork ${run.id}${at ? ` --at ${at}` : ""}${deployment.value ? ` --deployment ${quote(deployment.value)}` : ""} --idempotency-key ${key}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/rerun", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

interface ResumeProps extends Omit<Props, "run"> {
  run: { id: string };
  // The ID of the hook that is chosen at first.
  hook?: string;
  // The only hook to choose.
  only?: Hook;
}

export function Resume({ run, only, hook: wanted = only?.id ?? "", done, close }: ResumeProps) {
  const list = useResource((signal) => call(project.value, "GET /v1/runs/{id}/hooks", {
    path: { id: run.id }, query: { order: "desc", limit: 200 }, signal,
  }), [run.id]);
  const open: Hook[] = list.data.value?.data.filter((h) => h.status === "active" && h.verify !== "vote") ?? [];
  const chosen = useSignal(wanted);
  const edited = useSignal<string | undefined>(undefined);
  const typed = useSignal<Typed>({});
  const resumeId = useId();
  const hook = open.find((h) => h.id === chosen.value) ?? only ?? (wanted ? undefined : open[0]); // never another one than the reader chose
  const asked = useResource(async (signal) => hook ? askedIn(await callText(project.value, "GET /v1/runs/{id}/hooks/{hookId}", { path: { id: run.id, hookId: hook.id }, signal })) : null, [hook?.id]);
  const fields = asked.data.value?.fields ?? [];
  const filled = fill(fields, typed.value);
  const text = fields.length > 0 ? filled.json || "null" : edited.value ?? '{"approved": true}';
  const path = { id: run.id, hookId: hook?.id ?? "HOOK" };
  const problem = problemIn(text);
  const body = withValue({ resumeId }, "payload", problem ? "null" : text);
  const act = async () => {
    await call(project.value, "POST /v1/runs/{id}/hooks/{hookId}/resume", { path, text: body });
    done();
  };
  const missing = list.data.value && !hook ? (wanted ? `Hook ${wanted} is not among the newest 200 that are open.` : "No hook of this run is open.") : hook && !asked.loading.value ? "" : "Reading the hooks …";
  const blocked = missing || (problem ? "The payload is not valid JSON." : Object.keys(filled.problems).length > 0 ? "Something is missing or wrong." : "");
  return (
    <Dialog title={only ? `Resume ${only.id}` : "Resume a hook"} button="Resume" act={act} close={close} blocked={blocked}>
      {!only && <label>Hook<select value={hook?.id} onChange={(e) => { chosen.value = e.currentTarget.value; typed.value = {}; }}>
        {open.map((h) => <option value={h.id}>{h.id}{h.signal ? ` (signal ${h.signal})` : ""}</option>)}</select></label>}
      {hook?.verify && <p class="warning">It accepts only signed requests, so this is refused. The CLI has --unverified for admins.</p>}
      {asked.data.value?.question && <p class="strong">{asked.data.value.question}</p>}
      {asked.data.value?.metadata && <div class="metadata"><span class="quiet">Metadata</span><pre class="raw text" tabIndex={0}>{asked.data.value.metadata}</pre></div>}
      {fields.length > 0 ? <FormFields fields={fields} typed={typed.value} problems={{}} change={(t) => (typed.value = t)} />
        : <Editor label="Payload, any JSON" text={text} change={(t) => (edited.value = t)} />}
      <Commands cli={`stepwell hooks resume ${quote(path.hookId)} --run ${run.id} --payload ${quote(text)} --resume-id ${resumeId}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/hooks/{hookId}/resume", { path }), body)} />
    </Dialog>
  );
}

// askedIn returns what a hook asks for: the fields of its schema, or what the run has said about it otherwise.
function askedIn(text: string): { question: string; fields: Field[]; metadata: string } {
  const hook = parseJson(text);
  const [schema, metadata] = [member(hook, "schema"), member(hook, "metadata")];
  return {
    question: (JSON.parse(text) as Hook).question ?? "", fields: schema ? fieldsOf(schema) : [],
    metadata: metadata && !schema ? writeJson(metadata) : "",
  };
}

interface SignalProps {
  signal?: string;
  done: () => void;
  close: () => void;
}

export function Signal({ signal = "", done, close }: SignalProps) {
  const name = useSignal(signal);
  const text = useSignal("null");
  const id = useId();
  const problem = problemIn(text.value);
  const body = withValue({ id }, "data", problem ? "null" : text.value);
  const path = { name: name.value || "NAME" };
  const act = async () => {
    await call(project.value, "POST /v1/signals/{name}", { path, text: body });
    done();
  };
  const blocked = name.value === "" ? "The name is missing." : problem ? "The data is not valid JSON." : "";
  return (
    <Dialog title="Send a signal" button="Send" act={act} close={close} blocked={blocked}>
      <p>It resumes every hook of the project that waits for this name and whose condition it meets.</p>
      <label>Name<input value={name.value} placeholder="order.paid" onInput={(e) => (name.value = e.currentTarget.value.trim())} /></label>
      <Editor label="Data, any JSON" text={text.value} change={(t) => (text.value = t)} />
      <Commands cli={`stepwell signals send ${quote(path.name)} --data ${quote(text.value)} --id ${id}`}
        curl={curl(server, "POST", addressOf("POST /v1/signals/{name}", { path }), body)} />
    </Dialog>
  );
}

// Send sends a message to an inbox of a run.
export function Send({ run, inbox, done, close }: Props & { inbox: string }) {
  const text = useSignal("null");
  const id = useId();
  const problem = problemIn(text.value);
  const body = withValue({ id }, "payload", problem ? "null" : text.value);
  const path = { id: run.id, name: inbox };
  const act = async () => {
    await call(project.value, "POST /v1/runs/{id}/inbox/{name}", { path, text: body });
    done();
  };
  return (
    <Dialog title={`Send a message to ${inbox}`} button="Send" act={act} close={close} blocked={problem && "The message is not valid JSON."}>
      <Editor label="Message, any JSON" text={text.value} change={(t) => (text.value = t)} />
      <Commands cli={`stepwell runs send ${run.id} ${quote(inbox)} --payload ${quote(text.value)} --id ${id}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/inbox/{name}", { path }), body)} />
    </Dialog>
  );
}
