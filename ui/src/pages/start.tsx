// The form that starts a run: an empty one, or one that is filled with an earlier run.
import { useSignal } from "@preact/signals";
import type { Run } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { formatAttributes, parseAttributes } from "../lib/form";
import { member, parseJson, withValue, writeJson, type JsonValue } from "../lib/jsontext";
import { curl, quote } from "../lib/shell";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { Editor, Gated, problemIn, useId } from "./actions";

const longestInput = 256 * 1024; // characters that one can edit

export function Start({ like, close }: { like?: Run; close: () => void }) {
  const first = useResource(async (signal) => like
    ? parseJson(await callText(project.value, "GET /v1/runs/{id}/events/{seq}", { path: { id: like.id, seq: 1 }, signal }))
    : parseJson("{}"), [like?.id]);
  const filled = first.data.value;
  if (filled) return <Form {...fieldsOf(filled, like)} close={close} />;
  return (
    <Dialog title="Start a run" button="Start" act={async () => {}} close={close} blocked={first.problem.value ? "" : "Reading the run …"}>
      {first.problem.value && <Trouble problem={first.problem.value} retry={first.refresh} />}
    </Dialog>
  );
}

interface Fields {
  workflow: string;
  deployment: string;
  input: string;
  runKey: string;
  attributes: string;
  // Why the input of the earlier run is not in the form; empty if it is.
  missing: string;
}

function fieldsOf(created: JsonValue, like?: Run): Fields {
  if (!like) return { workflow: "", deployment: "", input: "", runKey: "", attributes: "", missing: "" };
  const payload = member(created, "payload");
  const input = payload ? writeJson(payload) : "";
  const encoding = member(created, "encoding");
  const known = payload || encoding?.kind === "string" && encoding.text === '"none"';
  const missing = !known ? "The server cannot decode the run’s input." : input.length > longestInput ? "The run’s input is too long to be edited here." : "";
  const attributes = member(member(created, "data"), "attributes");
  return {
    workflow: like.workflow, deployment: like.deployment, runKey: like.key ?? "", missing, input: missing ? "" : input,
    attributes: attributes ? formatAttributes(JSON.parse(writeJson(attributes)) as Record<string, string>) : "",
  };
}

function Form({ close, missing, ...fields }: Fields & { close: () => void }) {
  const idempotencyKey = useId();
  const form = useSignal({ ...fields, delay: "", timeout: "" });
  const set = (change: Partial<typeof form.value>) => (form.value = { ...form.value, ...change });
  const f = form.value;
  const { attributes, problem } = parseAttributes(f.attributes);
  const wrong = f.input.trim() === "" ? "" : problemIn(f.input);
  const optional = { deployment: f.deployment, key: f.runKey, delay: f.delay, timeout: f.timeout };
  const rest = {
    workflow: f.workflow, idempotencyKey, ...Object.fromEntries(Object.entries(optional).filter(([, v]) => v)),
    ...(Object.keys(attributes).length > 0 && { attributes }),
  };
  const given = wrong ? "" : f.input.trim();
  const body = given ? withValue(rest, "input", given) : JSON.stringify(rest);
  const flags = (given && ` --input ${quote(given)}`) + Object.entries(optional).filter(([, v]) => v).map(([name, v]) => ` --${name} ${quote(v)}`).join("")
    + Object.entries(attributes).map(([name, v]) => ` --attr ${quote(`${name}=${v}`)}`).join("");
  const act = async () => {
    const started = await call(project.value, "POST /v1/runs", { text: body });
    go(href(["runs", started.id]));
  };
  const field = (label: string, name: "workflow" | "deployment" | "runKey" | "delay" | "timeout", placeholder: string) => (
    <label>{label}<input name={name} value={f[name]} placeholder={placeholder} onInput={(e) => set({ [name]: e.currentTarget.value.trim() })} /></label>
  );
  return (
    <Dialog title="Start a run" button="Start" act={act} close={close}
      blocked={f.workflow === "" ? "The workflow is missing." : wrong ? "The input is no JSON." : problem}>
      {missing && <p class="warning">{missing}</p>}
      <div class="pairs">{field("Workflow", "workflow", "order")}{field("Deployment", "deployment", "latest")}</div>
      <Editor label="Input: any JSON, or nothing" optional text={f.input} change={(input) => set({ input })} />
      <div class="pairs">{field("Key", "runKey", "none")}{field("Delay", "delay", "none, or 30s")}{field("Timeout", "timeout", "none, or 24h")}</div>
      <label>Attributes, one name=value a line
        <textarea class="mono" rows={2} spellcheck={false} value={f.attributes} aria-invalid={problem !== ""} onInput={(e) => set({ attributes: e.currentTarget.value })} /></label>
      <Commands cli={`stepwell runs start ${quote(f.workflow || "WORKFLOW")}${flags} --idempotency-key ${idempotencyKey}`}
        curl={curl(server, "POST", addressOf("POST /v1/runs", {}), body)} />
    </Dialog>
  );
}

// StartButton opens an empty form.
export function StartButton() {
  const open = useSignal(false);
  return (
    <>
      <Gated permission="invoke" act={() => (open.value = true)}>Start a run …</Gated>
      {open.value && <Start close={() => (open.value = false)} />}
    </>
  );
}
