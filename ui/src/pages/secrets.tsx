// Webhook secrets, sessions of the dashboard, and projects.
import { useSignal } from "@preact/signals";
import type { Session } from "../api.gen";
import { addressOf, call, server } from "../api";
import { curl, quote } from "../lib/shell";
import { project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Listing } from "../parts/listing";
import { Enter } from "../parts/switch";
import { Age } from "../parts/time";
import { session } from "../session";
import { useResource } from "../resource";

interface Props {
  name: string;
  done: () => void;
  close: () => void;
}

export function Secrets() {
  const list = useResource((signal) => call(project.value, "GET /v1/secrets", { signal }), []);
  const setting = useSignal<string | null>(null);
  const removing = useSignal<string | null>(null);
  return (
    <>
      <p class="intro">Senders of webhooks sign with these secrets. Values can be set, and never read.</p>
      <div class="bar"><button type="button" class="primary" onClick={() => (setting.value = "")}>New secret …</button>
        <Commands cli="stepwell secrets list" curl={curl(server, "GET", addressOf("GET /v1/secrets", {}))} /></div>
      <Listing list={list} what="secrets" heads={["Name", "#Created", "#Set", ""]} empty={<p>A webhook that verifies its sender needs one.</p>} row={(s) => (
        <tr key={s.name}><td class="strong">{s.name}</td>
          <td class="num" data-of="created"><Age at={s.createdAt} /></td><td class="num" data-of="set"><Age at={s.updatedAt} /></td>
          <td class="act"><button type="button" aria-label={`Replace ${s.name} …`} onClick={() => (setting.value = s.name)}>Replace …</button>{" "}
            <button type="button" aria-label={`Remove ${s.name} …`} onClick={() => (removing.value = s.name)}>Remove …</button></td></tr>
      )} />
      {setting.value !== null && <SetSecret name={setting.value} done={list.refresh} close={() => (setting.value = null)} />}
      {removing.value && <RemoveSecret name={removing.value} done={list.refresh} close={() => (removing.value = null)} />}
    </>
  );
}

function SetSecret({ name: given, done, close }: Props) {
  const name = useSignal(given);
  const text = useSignal("");
  const values = text.value.split("\n").map((v) => v.trim()).filter(Boolean);
  const path = { name: name.value || "NAME" };
  const act = async () => {
    await call(project.value, "PUT /v1/secrets/{name}", { path, body: { values } });
    done();
  };
  return (
    <Dialog title={given ? `Replace the values of ${given}` : "New secret"} button="Set it" act={act} close={close}
      blocked={!name.value ? "The name is missing." : values.length === 0 ? "The value is missing." : ""}>
      {!given && <label>Name, as hooks refer to it<input name="name" value={name.value} onInput={(e) => (name.value = e.currentTarget.value.trim())} /></label>}
      <label>Values, one a line. During a change, the old and the new one.
        <textarea class="mono" rows={3} autocomplete="off" spellcheck={false} value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} /></label>
      <Commands cli={`stepwell secrets set ${quote(path.name)} < FILE`} curl={curl(server, "PUT", addressOf("PUT /v1/secrets/{name}", { path }), '{"values": ["VALUE"]}')} />
    </Dialog>
  );
}

function RemoveSecret({ name, done, close }: Props) {
  const path = { name };
  return (
    <Dialog title={`Remove the secret ${name}`} button="Remove it" danger close={close} act={async () => {
      await call(project.value, "DELETE /v1/secrets/{name}", { path });
      done();
    }}>
      <p>Webhooks that require it are answered with 503 until it is set again. Senders usually repeat them.</p>
      <Commands cli={`stepwell secrets remove ${quote(name)}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/secrets/{name}", { path }))} />
    </Dialog>
  );
}

export function Sessions() {
  const list = useResource(async (signal) => {
    const found = await call(project.value, "GET /v1/ui/sessions", { query: { limit: 500 }, signal });
    return { ...found, data: found.data.sort((a, b) => (a.usedAt < b.usedAt ? 1 : -1)) };
  }, []);
  const ending = useSignal<Session | null>(null);
  return (
    <>
      <div class="bar"><p class="intro">Browsers that have opened this project. A session ends 7 days after its last use, and with its key.</p>
        <Commands cli="stepwell sessions list" curl={curl(server, "GET", addressOf("GET /v1/ui/sessions", {}))} /></div>
      <Listing list={list} what="sessions" heads={["Opened with", "Role", "#Signed in", "#Last used", ""]} all="stepwell sessions list"
        empty={<p>This server needs no key, or nobody has signed in.</p>} row={(s) => (
          <tr key={s.id}><td class="strong" title={s.keyId}>{s.keyName ?? "STEPWELL_API_KEY"}{s.current && <span class="quiet"> · this browser</span>}</td>
            <td>{s.role}</td><td class="num" data-of="signed in"><Age at={s.createdAt} /></td><td class="num" data-of="used"><Age at={s.usedAt} /></td>
            <td class="act"><button type="button" aria-label={`End the session of ${s.keyName ?? "STEPWELL_API_KEY"} …`} onClick={() => (ending.value = s)}>End …</button></td></tr>
        )} />
      {ending.value && <EndSession of={ending.value} done={list.refresh} close={() => (ending.value = null)} />}
    </>
  );
}

function EndSession({ of, done, close }: { of: Session; done: () => void; close: () => void }) {
  const path = { id: of.id };
  return (
    <Dialog title="End a session" button="End the session" danger close={close} act={async () => {
      await call(project.value, "DELETE /v1/ui/sessions/{id}", { path });
      done();
    }}>
      <p>The browser loses this project within 5 s. Other projects stay open in it.{of.current && <strong> It is the browser that you use.</strong>}</p>
      <p>The key stays valid: whoever has it can sign in again.{of.keyName && ` To prevent that, revoke the key ${of.keyName}.`}</p>
      <Commands cli={`stepwell sessions end ${of.id}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/ui/sessions/{id}", { path }))} />
    </Dialog>
  );
}

const count = (used?: number, limit?: number) => (limit === undefined ? "no limit" : `${used?.toLocaleString("en") ?? "?"} of ${limit.toLocaleString("en")}`);

export function Projects() {
  const list = useResource((signal) => call(project.value, "GET /v1/projects", { signal }), []);
  const making = useSignal(false);
  const entering = useSignal("");
  const opened = (name: string) => session.value?.projects.some((p) => p.project === name);
  return (
    <>
      <div class="bar"><button type="button" class="primary" onClick={() => (making.value = true)}>New project …</button>
        <Commands cli="stepwell projects list" curl={curl(server, "GET", addressOf("GET /v1/projects", {}))} /></div>
      <Listing list={list} what="projects" heads={["Name", "#Created", "#Starts today", "#Bytes stored", ""]} empty={null} row={(p) => (
        <tr key={p.name}><td class="strong">{p.name}</td><td class="num" data-of="created"><Age at={p.createdAt} /></td>
          <td class="num" data-of="starts">{count(p.limits?.startsToday, p.limits?.dailyStarts)}</td>
          <td class="num" data-of="bytes">{count(p.limits?.storedBytes, p.limits?.storageBytes)}</td>
          <td class="act">{opened(p.name) ? <span class="quiet">open</span>
            : <button type="button" aria-label={`Enter ${p.name} …`} onClick={() => (entering.value = p.name)}>Enter …</button>}</td></tr>
      )} />
      {making.value && <MakeProject name="" done={list.refresh} close={() => (making.value = false)} />}
      {entering.value && <Enter name={entering.value} close={() => (entering.value = "")} />}
    </>
  );
}

function MakeProject({ done, close }: Props) {
  const name = useSignal("");
  const path = { name: name.value || "NAME" };
  return (
    <Dialog title="New project" button="Create it" blocked={name.value ? "" : "The name is missing."} close={close} act={async () => {
      await call(project.value, "PUT /v1/projects/{name}", { path, body: {} });
      done();
    }}>
      <p>A project has its own runs, deployments, secrets and keys. It cannot be removed.</p>
      <label>Name<input name="name" value={name.value} onInput={(e) => (name.value = e.currentTarget.value.trim())} /></label>
      <Commands cli={`stepwell projects create ${quote(path.name)}`} curl={curl(server, "PUT", addressOf("PUT /v1/projects/{name}", { path }))} />
    </Dialog>
  );
}
