// What one can do with a run. What the role may not do is shown, and says which role may.
import { useSignal } from "@preact/signals";
import type { Hook, Run } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { JsonError, member, parseJson, withValue, writeJson } from "../lib/jsontext";
import { curl, quote } from "../lib/shell";
import { hasEnded } from "../lib/status";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { may, needs, type Permission } from "../session";
import { useResource } from "../resource";

type Open = "" | "cancel" | "rerun" | "resume" | "signal";

export function Actions({ run, done }: { run: Run; done: () => void }) {
  const open = useSignal<Open>("");
  const close = () => (open.value = "");
  const ended = hasEnded(run);
  const button = (name: Open, text: string, p: Permission, off: string) => (
    <button type="button" disabled={!may(p) || off !== ""} title={!may(p) ? needs(p) : off} onClick={() => (open.value = name)}>{text}</button>
  );
  const over = ended ? "The run has ended." : "";
  return (
    <div class="actions">
      {button("resume", "Resume hook …", "invoke", over)}
      {button("signal", "Send signal …", "invoke", "")}
      {button("rerun", "Rerun …", "write", run.driver === "client" && !ended ? "The run has not ended." : "")}
      {button("cancel", "Cancel …", "write", over)}
      {open.value === "cancel" && <Cancel run={run} done={done} close={close} />}
      {open.value === "rerun" && <Rerun run={run} close={close} />}
      {open.value === "resume" && <Resume run={run} done={done} close={close} />}
      {open.value === "signal" && <Signal done={done} close={close} />}
    </div>
  );
}

interface Props {
  run: Run;
  done: () => void;
  close: () => void;
}

function Cancel({ run, done, close }: Props) {
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

function Rerun({ run, close }: Omit<Props, "done">) {
  const deployment = useSignal("");
  const key = useSignal(crypto.randomUUID?.() ?? String(Math.random())).value; // a double click starts one run
  const body = { idempotencyKey: key, ...(deployment.value && { deployment: deployment.value }) };
  const path = { id: run.id };
  const act = async () => {
    const started = await call(project.value, "POST /v1/runs/{id}/rerun", { path, body });
    go(href(["runs", started.id]));
  };
  return (
    <Dialog title="Start a copy of this run" button="Start the copy" act={act} close={close}>
      <p>The copy has the same workflow, input, key and first attributes. This run stays as it is.</p>
      <label>Deployment<input value={deployment.value} placeholder={run.deployment} onInput={(e) => (deployment.value = e.currentTarget.value.trim())} /></label>
      <Commands cli={`stepwell runs rerun ${run.id}${deployment.value ? ` --deployment ${quote(deployment.value)}` : ""}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/rerun", { path }), JSON.stringify(body))} />
    </Dialog>
  );
}

// problemIn returns why a text is no JSON; empty if it is.
function problemIn(text: string): string {
  try {
    parseJson(text);
    return "";
  } catch (err) {
    return err instanceof JsonError ? err.message : String(err);
  }
}

function Editor({ label, text, change }: { label: string; text: string; change: (text: string) => void }) {
  const problem = problemIn(text);
  return (
    <label>{label}
      <textarea class="mono" rows={6} spellcheck={false} value={text} aria-invalid={problem !== ""} onInput={(e) => change(e.currentTarget.value)} />
      <span class="problem">{problem}</span>
    </label>
  );
}

// Resume resumes an open hook of a run: the one that is given, or one that the reader chooses.
export function Resume({ run, only, done, close }: Omit<Props, "run"> & { run: { id: string }; only?: Hook }) {
  const list = useResource((signal) => call(project.value, "GET /v1/runs/{id}/hooks", {
    path: { id: run.id }, query: { order: "desc", limit: 200 }, signal,
  }), [run.id]);
  const open: Hook[] = list.data.value?.data.filter((h) => h.status === "active") ?? [];
  const chosen = useSignal(only?.id ?? "");
  const text = useSignal('{"approved": true}');
  const resumeId = useSignal(crypto.randomUUID?.() ?? String(Math.random())).value; // a double click counts once
  const hook = open.find((h) => h.id === chosen.value) ?? only ?? open[0];
  const path = { id: run.id, hookId: hook?.id ?? "HOOK" };
  const problem = problemIn(text.value);
  const body = withValue({ resumeId }, "payload", problem ? "null" : text.value);
  const act = async () => {
    await call(project.value, "POST /v1/runs/{id}/hooks/{hookId}/resume", { path, text: body });
    done();
  };
  const blocked = problem || (list.data.value && !hook ? "No hook of this run is open." : hook ? "" : "Reading the hooks …");
  return (
    <Dialog title={only ? `Resume ${only.id}` : "Resume a hook"} button="Resume" act={act} close={close} blocked={blocked && (problem ? "The payload is no JSON." : blocked)}>
      {!only && <label>Hook<select value={hook?.id} onChange={(e) => (chosen.value = e.currentTarget.value)}>
        {open.map((h) => <option value={h.id}>{h.id}{h.signal ? ` (signal ${h.signal})` : ""}</option>)}</select></label>}
      {hook?.verify && <p class="warning">It accepts only signed requests, so this is refused. The CLI has --unverified for admins.</p>}
      {hook && <Metadata key={hook.id} run={run.id} hook={hook.id} />}
      <Editor label="Payload, any JSON" text={text.value} change={(t) => (text.value = t)} />
      <Commands cli={`stepwell hooks resume ${quote(path.hookId)} --run ${run.id} --payload ${quote(text.value)} --resume-id ${resumeId}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs/{id}/hooks/{hookId}/resume", { path }), body)} />
    </Dialog>
  );
}

// Metadata is what the run has said about the hook when it opened it.
function Metadata({ run, hook }: { run: string; hook: string }) {
  const text = useResource((signal) => callText(project.value, "GET /v1/runs/{id}/hooks/{hookId}", { path: { id: run, hookId: hook }, signal }), [run, hook]);
  const value = text.data.value ? member(parseJson(text.data.value), "metadata") : undefined;
  return value ? <div class="metadata"><span class="quiet">Metadata</span><pre class="raw text" tabIndex={0}>{writeJson(value)}</pre></div> : null;
}

export function Signal({ done, close }: Omit<Props, "run">) {
  const name = useSignal("");
  const text = useSignal("null");
  const id = useSignal(crypto.randomUUID?.() ?? String(Math.random())).value;
  const problem = problemIn(text.value);
  const body = withValue({ id }, "data", problem ? "null" : text.value);
  const path = { name: name.value || "NAME" };
  const act = async () => {
    await call(project.value, "POST /v1/signals/{name}", { path, text: body });
    done();
  };
  const blocked = name.value === "" ? "The name is missing." : problem ? "The data is no JSON." : "";
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
