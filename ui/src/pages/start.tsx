// The dialog that starts a run.
import { useSignal } from "@preact/signals";
import { addressOf, call, callText, server } from "../api";
import { parseFilter } from "../lib/filter";
import { member, parseJson, withValue, writeJson } from "../lib/jsontext";
import { curl, quote } from "../lib/shell";
import { go, href, project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Editor, problemIn } from "../parts/editor";
import { useResource } from "../resource";
import { may, needs } from "../session";

const fields = ["workflow", "deployment", "key", "attributes", "delay", "timeout"] as const;
type Fields = Record<(typeof fields)[number], string>;

// attributesIn returns the attributes in a text, such as customer=7 tier="very gold", and why it has none.
function attributesIn(text: string): { attributes: Record<string, string>; problem: string } {
  const { filter, problem } = parseFilter(text);
  const attributes = Object.fromEntries(filter.filter((t) => t.attribute !== undefined).map((t) => [t.attribute!, t.value]));
  return { attributes, problem: problem || filter.some((t) => t.field) ? "Write attributes as customer=7 tier=gold." : "" };
}

// inputOfLast returns the input of the newest run of a workflow, as it was written.
async function inputOfLast(workflow: string): Promise<string> {
  const { data } = await call(project.value, "GET /v1/runs", { query: { workflow, limit: 1 } });
  if (!data[0]) return "";
  const input = member(parseJson(await callText(project.value, "GET /v1/runs/{id}", { path: { id: data[0].id } })), "input");
  return input ? writeJson(input) : "";
}

export function StartRun({ workflow, close }: { workflow: string; close: () => void }) {
  const values = useSignal<Fields>({ workflow, deployment: "", key: "", attributes: "", delay: "", timeout: "" });
  const text = useSignal("");
  const idempotencyKey = useSignal(crypto.randomUUID?.() ?? String(Math.random())).value; // a double click starts one run
  const seen = useResource(async (signal) => {
    const [runs, deployments] = await Promise.all([
      call(project.value, "GET /v1/runs", { query: { limit: 200 }, signal }), call(project.value, "GET /v1/deployments", { signal })]);
    return {
      workflows: [...new Set([...deployments.data.flatMap((d) => d.workflows ?? []), ...runs.data.map((r) => r.workflow)])].sort(),
      deployments: deployments.data.map((d) => d.id),
    };
  }, []);
  const v = values.value;
  const { attributes, problem } = attributesIn(v.attributes);
  const bad = text.value.trim() === "" ? "" : problemIn(text.value);
  const given = Object.fromEntries(Object.entries({ ...v, attributes: "" }).filter(([, value]) => value !== ""));
  const whole = { ...given, ...(Object.keys(attributes).length > 0 && { attributes }), idempotencyKey };
  const body = text.value.trim() === "" || bad ? JSON.stringify(whole) : withValue(whole, "input", text.value);
  const act = async () => {
    const run = await call(project.value, "POST /v1/runs", { text: body });
    go(href(["runs", run.id]));
  };
  const field = (name: (typeof fields)[number], label: string, hint: string, list?: string) => (
    <label>{label}<input name={name} value={v[name]} placeholder={hint} list={list} autocomplete="off" spellcheck={false}
      onInput={(e) => (values.value = { ...v, [name]: name === "attributes" ? e.currentTarget.value : e.currentTarget.value.trim() })} /></label>
  );
  const blocked = !may("invoke") ? needs("invoke") : v.workflow === "" ? "The workflow is missing." : bad ? "The input is no JSON." : problem;
  return (
    <Dialog title="Start a run" button="Start the run" act={act} close={close} blocked={blocked}>
      <div class="pair">
        {field("workflow", "Workflow", "order", "start-workflows")}
        {field("deployment", "Deployment", "latest", "start-deployments")}
      </div>
      <datalist id="start-workflows">{seen.data.value?.workflows.map((w) => <option value={w} />)}</datalist>
      <datalist id="start-deployments">{seen.data.value?.deployments.map((d) => <option value={d} />)}</datalist>
      <Editor label="Input, any JSON, or nothing" text={text.value} problem={bad} change={(t) => (text.value = t)} />
      <p><button type="button" disabled={v.workflow === "" || !may("read")} title={may("read") ? "" : needs("read")}
        onClick={async () => (text.value = await inputOfLast(v.workflow).catch(() => text.value))}>Input of the last run</button></p>
      <div class="pair">
        {field("key", "Key, unique among unfinished runs", "none")}
        {field("attributes", "Attributes", "customer=7 tier=gold")}
        {field("delay", "Delay, such as 30s", "none")}
        {field("timeout", "Timeout, such as 24h", "none")}
      </div>
      <Commands open cli={commandOf(v, attributes, bad ? "" : text.value.trim(), idempotencyKey)}
        curl={curl(server, "POST", addressOf("POST /v1/runs", {}), body)} />
    </Dialog>
  );
}

function commandOf(v: Fields, attributes: Record<string, string>, input: string, idempotencyKey: string): string {
  const flags = { input, deployment: v.deployment, key: v.key, delay: v.delay, timeout: v.timeout };
  return ["stepwell runs start", v.workflow ? quote(v.workflow) : "WORKFLOW",
    ...Object.entries(flags).filter(([, value]) => value !== "").map(([name, value]) => `--${name} ${quote(value)}`),
    ...Object.entries(attributes).map(([name, value]) => `--attr ${quote(`${name}=${value}`)}`),
    `--idempotency-key ${idempotencyKey}`].join(" ");
}
