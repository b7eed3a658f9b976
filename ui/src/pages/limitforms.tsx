// What one can do with limits and policies. Each form says the same as a request and as a command.
import { useSignal } from "@preact/signals";
import type { Limit, LimitSpec, Policy, PolicyUse } from "../api.gen";
import { policyCommand, setCommand } from "../lib/limit";
import { quote } from "../lib/shell";
import { Act, type Form } from "../parts/act";
import { Editor, problemIn } from "../parts/editor";

// specOf returns the settings of a limit as a request has them.
function specOf(l: Limit): LimitSpec {
  const { limit, per, burst } = l.rate ?? { limit: 0, per: "" };
  return {
    ...(l.perKey && { perKey: l.perKey }), ...(l.total && { total: l.total }), ...(limit && { rate: { limit, per, ...(burst && { burst }) } }),
    fair: l.fair, onFull: l.onFull, paused: l.paused,
  };
}

const names = ["name", "perKey", "total", "rate", "per", "burst"] as const;
type Name = (typeof names)[number];

// PutLimit is the form that creates a limit, or replaces one.
export function PutLimit({ of, done, close }: { of?: Limit; done: (name: string) => void; close: () => void }) {
  const text = (n: number | undefined) => (n ? String(n) : "");
  const form = useSignal<Record<Name, string> & Required<Pick<LimitSpec, "fair" | "onFull">>>({
    name: of?.name ?? "", perKey: text(of?.perKey), total: text(of?.total), rate: text(of?.rate?.limit), per: of?.rate?.per ?? "",
    burst: text(of?.rate?.burst), fair: of?.fair ?? false, onFull: of?.onFull ?? "wait",
  });
  const f = form.value;
  const set = (change: Partial<typeof f>) => (form.value = { ...form.value, ...change });
  const body: LimitSpec = {
    ...(f.perKey && { perKey: Number(f.perKey) }), ...(f.total && { total: Number(f.total) }),
    ...(f.rate && { rate: { limit: Number(f.rate), per: f.per, ...(f.burst && { burst: Number(f.burst) }) } }),
    fair: f.fair, onFull: f.onFull, ...(of?.paused && { paused: true }),
  };
  const path = { name: f.name || "NAME" };
  const blocked = f.name === "" ? "The name is missing." : [f.perKey, f.total, f.rate, f.burst].some((n) => !/^\d*$/.test(n)) ? "Write whole numbers."
    : !f.perKey && !f.total && !f.rate ? "Say what it bounds." : f.rate && !f.per ? "Say in which time, such as 1m." : "";
  const field = (name: Name, label: string, hint: string) => (
    <label>{label}<input name={name} value={f[name]} placeholder={hint} disabled={name === "name" && of !== undefined} autocomplete="off" spellcheck={false}
      onInput={(e) => set({ [name]: e.currentTarget.value.trim() })} /></label>
  );
  return (
    <Act operation="PUT /v1/limits/{name}" request={{ path, body }} title={of ? `Edit ${of.name}` : "New limit"} button={of ? "Change it" : "Create it"}
      cli={setCommand(path.name, body)} done={() => done(f.name)} close={close} blocked={blocked}>
      <p>The settings count at once for all that waits. What holds a slot keeps it.</p>
      <div class="pair">
        {field("name", "Name", "stripe")}
        <label>If there is no slot, a run<select name="onFull" value={f.onFull} onChange={(e) => set({ onFull: e.currentTarget.value as LimitSpec["onFull"] })}>
          <option value="wait">waits</option><option value="reject">is refused</option>
          <option value="replaceWaiting">replaces those that wait</option><option value="cancelOldest">cancels the oldest</option></select></label>
        {field("perKey", "At once, with one key", "no bound")}
        {field("total", "At once, in all", "no bound")}
        {field("rate", "Starts with one key", "no bound")}
        {field("per", "in any", "1m")}
        {field("burst", "of them at once", "1")}
      </div>
      <label class="check"><input type="checkbox" checked={f.fair} onChange={(e) => set({ fair: e.currentTarget.checked })} />Tenants take turns at the slots</label>
    </Act>
  );
}

// PauseLimit pauses a limit, or resumes one.
export function PauseLimit({ of, done, close }: Form & { of: Limit }) {
  const request = { path: { name: of.name }, body: { ...specOf(of), paused: !of.paused } };
  return (
    <Act operation="PUT /v1/limits/{name}" request={request} title={`${of.paused ? "Resume" : "Pause"} ${of.name}`} button={of.paused ? "Resume it" : "Pause it"}
      cli={`stepwell limits set ${quote(of.name)} ${of.paused ? "--no-paused" : "--paused"}`} done={done} close={close}>
      <p>{of.paused ? "What waits gets slots again, in its order." : "Nothing gets a slot until it is resumed. What holds one continues."}</p>
    </Act>
  );
}

export function DeleteLimit({ of, done, close }: Form & { of: Limit }) {
  const force = useSignal(false);
  const request = { path: { name: of.name }, query: force.value ? { force: true } : {} };
  return (
    <Act operation="DELETE /v1/limits/{name}" request={request} title={`Delete ${of.name}`} button="Delete it" danger
      cli={`stepwell limits remove ${quote(of.name)}${force.value ? " --force" : ""}`} done={done} close={close}>
      <p>It is refused while a policy names the limit, or while something holds or awaits a slot.</p>
      <label class="check"><input type="checkbox" name="force" checked={force.value} onChange={(e) => (force.value = e.currentTarget.checked)} />Delete it anyway: what waits goes on without it</label>
    </Act>
  );
}

// PutPolicy is the form that creates the policy of a workflow, or replaces it.
export function PutPolicy({ of, done, close }: Form & { of?: Policy }) {
  const workflow = useSignal(of?.workflow ?? "");
  const priority = useSignal(of?.priority ?? "");
  const text = useSignal(JSON.stringify(of?.limits ?? [{ name: "LIMIT", key: "attributes.customer" }], null, 1));
  const wrong = problemIn(text.value);
  const limits = wrong ? [] : JSON.parse(text.value) as PolicyUse[];
  const listed = Array.isArray(limits) && limits.every((u) => u !== null && typeof u === "object");
  const path = { workflow: workflow.value || "WORKFLOW" };
  const steps = of?.steps && { steps: of.steps }; // which the form keeps as they are
  const body = { limits, ...steps, ...(priority.value && { priority: priority.value }) };
  const blocked = workflow.value === "" ? "The workflow is missing." : wrong || !listed ? "The limits are no JSON list." : "";
  return (
    <Act operation="PUT /v1/policies/{workflow}" request={{ path, body }} title={of ? `Edit the policy of ${of.workflow}` : "New policy"} button={of ? "Change it" : "Create it"}
      cli={policyCommand(path.workflow, listed ? limits : [], priority.value)} done={done} close={close} blocked={blocked}>
      <p>It counts for runs that start from now on. A key is <code>key</code>, <code>workflow</code>, <code>attributes.NAME</code>, or a text in quotes.</p>
      <label>Workflow<input name="workflow" value={workflow.value} disabled={of !== undefined} spellcheck={false} onInput={(e) => (workflow.value = e.currentTarget.value.trim())} /></label>
      <Editor label="Limits, with name, key, tenant and cost" text={text.value} change={(t) => (text.value = t)} />
      <label>Priority: go before those that came so much earlier, such as 5m<input name="priority" value={priority.value} placeholder="none" spellcheck={false}
        onInput={(e) => (priority.value = e.currentTarget.value.trim())} /></label>
    </Act>
  );
}

export function DeletePolicy({ workflow, done, close }: Form & { workflow: string }) {
  return (
    <Act operation="DELETE /v1/policies/{workflow}" request={{ path: { workflow } }} title={`Delete the policy of ${workflow}`} button="Delete it" danger
      cli={`stepwell policies remove ${quote(workflow)}`} done={done} close={close}>
      <p>Runs that have started keep their limits.</p>
    </Act>
  );
}
