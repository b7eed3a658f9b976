// The form that starts a run: an empty one, or one that is filled with an earlier run.
import { useSignal } from "@preact/signals";
import type { Run } from "../api.gen";
import { addressOf, call, callText, server } from "../api";
import { attributesIn, formatFilter } from "../lib/filter";
import { member, parseJson, withValue, writeJson, type JsonValue } from "../lib/jsontext";
import { curl, quote } from "../lib/shell";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Editor, problemIn } from "../parts/editor";
import { Trouble } from "../parts/notice";
import { useResource } from "../resource";
import { may, needs } from "../session";
import { useId } from "../parts/gated";

const longestInput = 256 * 1024; // characters that one can edit

export interface StartProps {
  workflow?: string;
  // The run whose start fills the form.
  like?: Run;
  close: () => void;
}

export function Start({ workflow = "", like, close }: StartProps) {
  return like ? <Again like={like} close={close} /> : <Form {...empty} workflow={workflow} close={close} />;
}

// Again is the form with the start of an earlier run.
function Again({ like, close }: { like: Run; close: () => void }) {
  const first = useResource(async (signal) =>
    parseJson(await callText(project.value, "GET /v1/runs/{id}/events/{seq}", { path: { id: like.id, seq: 1 }, signal })), [like.id]);
  const created = first.data.value;
  if (created) return <Form {...fieldsOf(created, like)} close={close} />;
  return (
    <Dialog title="Start a run" button="Start the run" act={async () => {}} close={close} blocked={first.problem.value ? "" : "Reading the run …"}>
      {first.problem.value && <Trouble problem={first.problem.value} retry={first.refresh} />}
    </Dialog>
  );
}

const names = ["workflow", "deployment", "key", "attributes", "delay", "timeout"] as const;
type Name = (typeof names)[number];

interface Fields extends Record<Name, string> {
  input: string;
  // Why the input of the earlier run is not in the form; empty if it is.
  missing: string;
}

const empty: Fields = { workflow: "", deployment: "", key: "", attributes: "", delay: "", timeout: "", input: "", missing: "" };

function fieldsOf(created: JsonValue, like: Run): Fields {
  const payload = member(created, "payload");
  const input = payload ? writeJson(payload) : "";
  const encoding = member(created, "encoding");
  const known = payload || encoding?.kind === "string" && encoding.text === '"none"';
  const missing = !known ? "The server cannot decode the run’s input." : input.length > longestInput ? "The run’s input is too long to be edited here." : "";
  const given = member(member(created, "data"), "attributes");
  const attributes = given ? JSON.parse(writeJson(given)) as Record<string, string> : {};
  return {
    ...empty, workflow: like.workflow, deployment: like.deployment, key: like.key ?? "", missing, input: missing ? "" : input,
    attributes: formatFilter(Object.entries(attributes).map(([attribute, value]) => ({ attribute, value }))),
  };
}

// inputOfLast returns the input of the newest run of a workflow, as it was written.
async function inputOfLast(workflow: string): Promise<string> {
  const { data } = await call(project.value, "GET /v1/runs", { query: { workflow, limit: 1 } });
  if (!data[0]) return "";
  const input = member(parseJson(await callText(project.value, "GET /v1/runs/{id}", { path: { id: data[0].id } })), "input");
  return input ? writeJson(input) : "";
}

function Form({ close, missing, ...fields }: Fields & { close: () => void }) {
  const idempotencyKey = useId();
  const form = useSignal(fields);
  const f = form.value;
  const set = (change: Partial<typeof f>) => (form.value = { ...form.value, ...change });
  const seen = useResource(async (signal) => {
    if (!may("metadata")) return null;
    const [runs, deployments] = await Promise.all([
      call(project.value, "GET /v1/runs", { query: { limit: 200 }, signal }), call(project.value, "GET /v1/deployments", { signal })]);
    return {
      workflows: [...new Set([...deployments.data.flatMap((d) => d.workflows ?? []), ...runs.data.map((r) => r.workflow)])].sort(),
      deployments: deployments.data.map((d) => d.id),
    };
  }, []);
  const { attributes, problem } = attributesIn(f.attributes);
  const wrong = f.input.trim() === "" ? "" : problemIn(f.input);
  const input = wrong ? "" : f.input.trim();
  const optional = Object.entries({ deployment: f.deployment, key: f.key, delay: f.delay, timeout: f.timeout }).filter(([, value]) => value !== "");
  const rest = {
    workflow: f.workflow, ...Object.fromEntries(optional), ...(Object.keys(attributes).length > 0 && { attributes }), idempotencyKey,
  };
  const body = input ? withValue(rest, "input", input) : JSON.stringify(rest);
  const command = ["stepwell runs start", quote(f.workflow || "WORKFLOW"), ...(input ? [`--input ${quote(input)}`] : []),
    ...optional.map(([name, value]) => `--${name} ${quote(value)}`),
    ...Object.entries(attributes).map(([name, value]) => `--attr ${quote(`${name}=${value}`)}`), `--idempotency-key ${idempotencyKey}`];
  const act = async () => {
    const started = await call(project.value, "POST /v1/runs", { text: body });
    go(href(["runs", started.id]));
  };
  const field = (name: Name, label: string, hint: string, list?: string) => (
    <label>{label}<input name={name} value={f[name]} placeholder={hint} list={list} autocomplete="off" spellcheck={false}
      onInput={(e) => set({ [name]: name === "attributes" ? e.currentTarget.value : e.currentTarget.value.trim() })} /></label>
  );
  const blocked = !may("invoke") ? needs("invoke") : f.workflow === "" ? "The workflow is missing." : wrong ? "The input is not valid JSON." : problem;
  return (
    <Dialog title="Start a run" button="Start the run" act={act} close={close} blocked={blocked}>
      {missing && <p class="warning">{missing}</p>}
      <div class="pair">
        {field("workflow", "Workflow", "order", "start-workflows")}
        {field("deployment", "Deployment", "latest", "start-deployments")}
      </div>
      <datalist id="start-workflows">{seen.data.value?.workflows.map((w) => <option value={w} />)}</datalist>
      <datalist id="start-deployments">{seen.data.value?.deployments.map((d) => <option value={d} />)}</datalist>
      <Editor label="Input: any JSON, or nothing" optional text={f.input} change={(text) => set({ input: text })} />
      <p><button type="button" disabled={f.workflow === "" || !may("read")} title={may("read") ? "" : needs("read")}
        onClick={async () => set({ input: await inputOfLast(f.workflow).catch(() => f.input) })}>Input of the last run</button></p>
      <div class="pair">
        {field("key", "Key, unique among unfinished runs", "none")}
        {field("attributes", "Attributes", "customer=7 tier=gold")}
        {field("delay", "Delay, such as 30s", "none")}
        {field("timeout", "Timeout, such as 24h", "none")}
      </div>
      <Commands open cli={command.join(" ")} curl={curl(server, "POST", addressOf("POST /v1/runs", {}), body)} />
    </Dialog>
  );
}
