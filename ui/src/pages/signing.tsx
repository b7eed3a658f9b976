// The keys that sign calls to functions, and how one is replaced.
import { useSignal } from "@preact/signals";
import type { SigningKey } from "../api.gen";
import { addressOf, call, server } from "../api";
import { curl } from "../lib/shell";
import { project } from "../location";
import { Commands } from "../parts/copy";
import { Dialog } from "../parts/dialog";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Once } from "../parts/once";
import { Age } from "../parts/time";
import { Problem } from "../lib/problem";
import { useResource } from "../resource";

export function SigningKeys() {
  const list = useResource((signal) => call(project.value, "GET /v1/signing-keys", { signal }), []);
  const secret = useSignal("");
  const failed = useSignal<Problem | null>(null);
  const busy = useSignal(false);
  const deleting = useSignal<SigningKey | null>(null);
  const create = async () => {
    if (busy.value) return; // a double click would make a key whose secret nobody sees
    busy.value = true;
    failed.value = null;
    try {
      secret.value = (await call(project.value, "POST /v1/signing-keys")).secret;
    } catch (err) {
      failed.value = err as Problem;
    }
    busy.value = false;
    list.refresh();
  };
  const keys = list.data.value?.data;
  const problem = list.problem.value ?? failed.value;
  return (
    <>
      <p class="intro">With a signing key, every call to a function of this project is signed, so the function knows who calls.</p>
      {problem && <Trouble problem={problem} retry={list.refresh} />}
      {secret.value && <Once title="The secret of the new signing key" text={secret.value} done={() => (secret.value = "")} />}
      {!keys && !problem && <Loading what="signing keys" />}
      {keys?.length === 0 && <Empty title="Calls are not signed"><p>Create a key, and give its secret to the functions as <code>STEPWELL_SIGNING_KEYS</code>.</p>
        <button type="button" class="primary" onClick={create}>New signing key</button></Empty>}
      {keys && keys.length > 0 && <Replace keys={keys} create={create} remove={(k) => (deleting.value = k)} />}
      <Commands cli="stepwell signing-keys create" curl={curl(server, "POST", addressOf("POST /v1/signing-keys", {}))} />
      {deleting.value && <Delete of={deleting.value} last={keys?.length === 1} done={list.refresh} close={() => (deleting.value = null)} />}
    </>
  );
}

interface ReplaceProps {
  keys: SigningKey[];
  create: () => void;
  remove: (k: SigningKey) => void;
}

// Replace shows the keys and the three steps of replacing one. Which step is next follows from the number of keys.
function Replace({ keys, create, remove }: ReplaceProps) {
  const both = keys.length > 1;
  const oldest = keys[0]!;
  return (
    <>
      <table class="list">
        <thead><tr><th>Signing key</th><th>Use</th><th class="num">Created</th><th><span class="hidden">Actions</span></th></tr></thead>
        <tbody>{keys.map((k) => (
          <tr key={k.id}><td class="mono">{k.id}</td><td>{!both ? "signs calls" : k === oldest ? "old: signs calls, too" : "new: signs calls, too"}</td>
            <td class="num"><Age at={k.createdAt} /></td>
            <td class="act"><button type="button" aria-label={`Delete ${k.id} …`} onClick={() => remove(k)}>Delete …</button></td></tr>
        ))}</tbody>
      </table>
      <h2 class="gap">Replace the signing key</h2>
      <ol class="guide">
        <li aria-current={both ? undefined : "step"}><div><strong>Create the new key{both && ": done"}.</strong> Calls carry both signatures from then on, so nothing is refused.</div>
          <button type="button" class={both ? "" : "primary"} disabled={both} title={both ? "The project has two keys, which is the most." : ""} onClick={create}>New signing key</button></li>
        <li aria-current={both ? "step" : undefined}><div><strong>Give both secrets to the functions</strong> as <code>STEPWELL_SIGNING_KEYS=new,old</code>, and deploy them.
          If the old key has leaked, give them only the new one.</div></li>
        <li><div><strong>Delete the old key</strong> once every function has the new one.</div>
          <button type="button" disabled={!both} title={both ? "" : "There is only one key."} onClick={() => remove(oldest)}>Delete the old key …</button></li>
      </ol>
    </>
  );
}

function Delete({ of, last, done, close }: { of: SigningKey; last: boolean; done: () => void; close: () => void }) {
  const path = { id: of.id };
  return (
    <Dialog title="Delete a signing key" button="Delete the key" danger close={close} act={async () => {
      await call(project.value, "DELETE /v1/signing-keys/{id}", { path });
      done();
    }}>
      <p><span class="mono">{of.id}</span> signs no calls a few seconds later. This cannot be undone.</p>
      <p class="warning">{last ? "It is the only key: calls are not signed any more, and functions that check signatures refuse them."
        : "Functions that know only this key refuse all calls."}</p>
      <Commands cli={`stepwell signing-keys remove ${of.id}`} curl={curl(server, "DELETE", addressOf("DELETE /v1/signing-keys/{id}", { path }))} />
    </Dialog>
  );
}
