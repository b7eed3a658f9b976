// The project of the page, and the ways to another one.
import { useSignal } from "@preact/signals";
import { base, call } from "../api";
import { pathOf } from "../lib/path";
import { go, project } from "../location";
import { useResource } from "../resource";
import { enter, enterAs, entryHours, operated, operator, session } from "../session";
import { Dialog } from "./dialog";

const show = (name: string) => go(pathOf(base, name, "overview"));

// Values of the select that are no projects have a space, which no name of a project has.
const addKey = " key";
const entry = " enter ";

export function Switch() {
  const chosen = useSignal("");
  const opened = [...new Set([...session.value?.projects.map((p) => p.project) ?? [], project.value])];
  const all = useResource(async (signal) => operator.value ? (await call(operated, "GET /v1/projects", { signal })).data : [], [operator.value], { on: operator.value ? ["settings"] : [] });
  const others = all.data.value?.map((p) => p.name).filter((name) => !opened.includes(name)) ?? [];
  const choose = (e: { currentTarget: HTMLSelectElement }) => {
    const value = e.currentTarget.value;
    e.currentTarget.value = project.value;
    if (value.startsWith(" ")) chosen.value = value;
    else show(value);
  };
  const close = () => (chosen.value = "");
  return (
    <>
      <label class="project"><span class="hidden">Project</span>
        <select value={project.value} onChange={choose}>
          {opened.map((name) => <option value={name}>{name}</option>)}
          {others.length > 0 && <optgroup label="Enter as operator">{others.map((name) => <option value={entry + name}>{name} …</option>)}</optgroup>}
          <option value={addKey}>Add a key …</option>
        </select>
      </label>
      {chosen.value === addKey && <AddKey close={close} />}
      {chosen.value.startsWith(entry) && <Enter name={chosen.value.slice(entry.length)} close={close} />}
    </>
  );
}

function AddKey({ close }: { close: () => void }) {
  const key = useSignal("");
  return (
    <Dialog title="Open another project" button="Open" blocked={key.value ? "" : "The key is missing."} close={close}
      act={async () => show(await enter({ key: key.value.trim() }))}>
      <p>A key opens its project in this browser, beside those that are open. A second key of a project takes the place of the first.</p>
      <label>API key<input type="password" name="key" autocomplete="off" spellcheck={false} value={key.value} onInput={(e) => (key.value = e.currentTarget.value)} /></label>
    </Dialog>
  );
}

const roles = ["read", "metadata", "write", "admin"] as const;

// Enter opens a project that the session has no key of.
export function Enter({ name, close }: { name: string; close: () => void }) {
  const role = useSignal<(typeof roles)[number]>("read");
  return (
    <Dialog title={`Enter the project ${name}`} button="Enter" close={close} act={async () => {
      await enterAs(name, role.value);
      show(name);
    }}>
      <p>As an operator you may make a key of any project. This makes one that nobody sees and that expires after {entryHours} hours. The audit log of the project has it.</p>
      <label>Role<select value={role.value} onChange={(e) => (role.value = e.currentTarget.value as typeof role.value)}>
        {roles.map((r) => <option value={r}>{r}</option>)}</select></label>
    </Dialog>
  );
}
