// API keys: who has one, and until when.
import { useSignal } from "@preact/signals";
import type { Key } from "../api.gen";
import { addressOf, call, server } from "../api";
import { clock, tick } from "../clock";
import { curl, quote } from "../lib/shell";
import type { State } from "../lib/status";
import { project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Status } from "../parts/icon";
import { Listing } from "../parts/listing";
import { Once } from "../parts/once";
import { Age } from "../parts/time";
import { useResource, type Resource } from "../resource";

type Role = Key["role"];

const roles: Record<Role, string> = {
  read: "reads everything but administration",
  metadata: "reads the same, but no payloads",
  write: "reads, and changes runs and messages; for an app",
  invoke: "starts runs, resumes hooks, sends signals",
  worker: "registers deployments",
  admin: "everything, including keys and secrets",
};

function stateOfKey(k: Key, now: number): State {
  if (k.revokedAt) return { look: "cancelled", word: "revoked" };
  if (k.expiresAt && Date.parse(k.expiresAt) <= now) return { look: "cancelled", word: "expired" };
  return { look: "completed", word: "valid" };
}

export function Keys() {
  const list = useResource((signal) => call(project.value, "GET /v1/keys", { query: { limit: 200 }, signal }), []);
  const made = useSignal<{ name: string; text: string } | null>(null);
  const making = useSignal(false);
  const revoking = useSignal<Key | null>(null);
  return (
    <>
      <div class="bar"><button type="button" class="primary" onClick={() => (making.value = true)}>New key …</button>
        <Commands cli="stepwell keys list" curl={curl(server, "GET", addressOf("GET /v1/keys", {}))} /></div>
      {made.value && <Once title={`The key ${made.value.name}`} text={made.value.text} done={() => (made.value = null)} />}
      <Listing list={list} what="keys" heads={["Status", "Name", "Role", "Begins with", "#Created", "#Last used", "#Expires", ""]} all="stepwell keys list --all"
        empty={<p>A key opens this project to a program or a person, with a role.</p>} row={(k) => {
          const state = stateOfKey(k, tick.value);
          return (
            <tr key={k.id} class={state.word === "valid" ? "" : "over-row"}>
              <td><Status {...state} /></td>
              <td class="strong" title={k.id}>{k.name}</td>
              <td>{k.role} {k.deployments && <span class="mono quiet">{k.deployments}</span>}</td>
              <td class="mono">{k.person ? <span class="quiet" title={k.person}>a person’s</span> : `${k.prefix}…`}</td>
              <td class="num" data-of="created"><Age at={k.createdAt} /></td>
              <td class="num" data-of="used">{k.lastUsedAt ? <Age at={k.lastUsedAt} /> : "never"}</td>
              <td class="num" data-of="expires">{k.expiresAt ? <Age at={k.expiresAt} /> : "never"}</td>
              <td class="act">{state.word === "valid" && <button type="button" aria-label={`Revoke ${k.name} …`} onClick={() => (revoking.value = k)}>Revoke …</button>}</td>
            </tr>
          );
        }} />
      {making.value && <Make list={list} made={(name, text) => (made.value = { name, text })} close={() => (making.value = false)} />}
      {revoking.value && <Revoke of={revoking.value} list={list} close={() => (revoking.value = null)} />}
    </>
  );
}

const days = { never: 0, "1 day": 1, "7 days": 7, "30 days": 30, "90 days": 90, "1 year": 365 };

interface MakeProps {
  list: Resource<{ data: Key[] }>;
  made: (name: string, text: string) => void;
  close: () => void;
}

function Make({ list, made, close }: MakeProps) {
  const name = useSignal("");
  const role = useSignal<Role>("read");
  const deployments = useSignal("");
  const lasts = useSignal<keyof typeof days>("90 days");
  const now = useSignal(clock.now()).value;
  const expiresAt = days[lasts.value] ? new Date(now + days[lasts.value] * 86_400_000).toISOString() : "";
  const worker = role.value === "worker";
  const body = { name: name.value || "NAME", role: role.value, ...(worker && { deployments: deployments.value }), ...(expiresAt && { expiresAt }) };
  const act = async () => {
    const key = await call(project.value, "POST /v1/keys", { body });
    made(key.name, key.key);
    list.refresh();
  };
  const blocked = name.value === "" ? "The name is missing." : worker && !deployments.value ? "The deployments are missing." : "";
  return (
    <Dialog title="New key" button="Create it" act={act} close={close} blocked={blocked}>
      <label>Name, such as the program that gets it<input name="name" value={name.value} maxLength={1024} onInput={(e) => (name.value = e.currentTarget.value)} /></label>
      <label>Role<select value={role.value} onChange={(e) => (role.value = e.currentTarget.value as Role)}>
        {Object.entries(roles).map(([r, what]) => <option value={r}>{r}: {what}</option>)}</select></label>
      {worker && <label>Deployments, such as orders@*<input value={deployments.value} onInput={(e) => (deployments.value = e.currentTarget.value.trim())} /></label>}
      <label>Expires after<select value={lasts.value} onChange={(e) => (lasts.value = e.currentTarget.value as typeof lasts.value)}>
        {Object.keys(days).map((d) => <option value={d}>{d}</option>)}</select></label>
      <Commands curl={curl(server, "POST", addressOf("POST /v1/keys", {}), JSON.stringify(body))}
        cli={`stepwell keys create ${quote(body.name)} --role ${role.value}${worker ? ` --deployments ${quote(deployments.value)}` : ""}${expiresAt ? ` --expires-at ${expiresAt}` : ""}`} />
    </Dialog>
  );
}

function Revoke({ of, list, close }: { of: Key; list: Resource<{ data: Key[] }>; close: () => void }) {
  const path = { id: of.id };
  const sessions = useResource(async (signal) => {
    const found = await call(project.value, "GET /v1/ui/sessions", { query: { limit: 1000 }, signal });
    const theirs = found.data.filter((s) => s.keyId === of.id);
    return { count: `${theirs.length}${found.cursor ? "+" : ""}`, own: theirs.some((s) => s.current) };
  }, [of.id]);
  const cut = sessions.data.value;
  return (
    <Dialog title={`Revoke the key ${of.name}`} button="Revoke the key" danger close={close} act={async () => {
      await call(project.value, "DELETE /v1/keys/{id}", { path });
      list.refresh();
    }}>
      <p>It was {of.lastUsedAt ? <>last used <strong><Age at={of.lastUsedAt} /></strong></> : <><strong>never used</strong>, as of a minute ago</>}. This cuts off, for good:</p>
      <ul class="cuts">
        <li>requests with it, within 5 s on every server, and its streams within another 5 s;</li>
        {of.role === "worker" ? <li>the registration of {of.deployments} when its app starts again;</li> : null}
        <li>{cut ? `${cut.count === "0" ? "no" : cut.count} session${cut.count === "1" ? "" : "s"} of the dashboard${cut.own ? ", and yours is one" : ""}.` : "the sessions of the dashboard that it has opened."}</li>
      </ul>
      {cut?.own && <p class="warning">You are signed in with this key: have another one at hand.</p>}
      <Commands cli={`stepwell keys revoke ${of.id}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/keys/{id}", { path }))} />
    </Dialog>
  );
}
