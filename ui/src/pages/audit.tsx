// The audit log: who did what to which thing.
import { useSignal } from "@preact/signals";
import type { Action } from "../api.gen";
import { addressOf, call, server } from "../api";
import { curl, quote } from "../lib/shell";
import { useList } from "../list";
import { go, href, project, search } from "../location";
import { Commands } from "../parts/copy";
import { Listing } from "../parts/listing";
import { Clock } from "../parts/time";
import { useResource } from "../resource";

const fields = ["actor", "action", "subject"] as const;
type Field = (typeof fields)[number];

const examples: Record<Field, string> = { actor: "a key’s ID, STEPWELL_API_KEY or cli", action: "key.create", subject: "an ID or a name" };

// filterOf returns what the address selects: one field, since a list has only one index.
function filterOf(): { field: Field; value: string } {
  const field = fields.find((f) => search.value.get(f)) ?? "actor";
  return { field, value: search.value.get(field) ?? "" };
}

const select = (field: Field, value: string) => go(href(["access", "audit"], { [field]: value }));

export function Audit() {
  const { field, value } = filterOf();
  const query = { limit: 100, ...(value && { [field]: value }) };
  const list = useList<Action>((cursor, signal) => call(project.value, "GET /v1/audit", { query: { ...query, cursor }, signal }), [field, value],
    (a) => String(a.seq), { on: ["settings"] });
  const names = useResource(async (signal) => new Map((await call(project.value, "GET /v1/keys", { query: { limit: 1000 }, signal })).data.map((k) => [k.id, k.name])), []);
  return (
    <>
      <Filter key={`${field} ${value}`} field={field} value={value} />
      <Commands cli={`stepwell audit list${value ? ` --${field} ${quote(value)}` : ""}`} curl={curl(server, "GET", addressOf("GET /v1/audit", { query }))} />
      <Listing list={list.first} what="entries" heads={["Time", "Actor", "Action", "Subject", "Details", "Address"]} empty={value ? <button type="button" onClick={() => select("actor", "")}>Show all entries</button> : null}
        row={(a) => <Row key={a.seq} of={a} names={names.data.value ?? new Map()} />} />
      {list.more && <p class="more"><button type="button" onClick={list.more} disabled={list.reading}>Older entries</button></p>}
    </>
  );
}

function Filter({ field: given, value: first }: { field: Field; value: string }) {
  const field = useSignal(given);
  const value = useSignal(first);
  return (
    <form class="bar" onSubmit={(e) => { e.preventDefault(); select(field.value, value.value.trim()); }}>
      <select aria-label="Select by" value={field.value} onChange={(e) => (field.value = e.currentTarget.value as Field)}>{fields.map((f) => <option value={f}>{f}</option>)}</select>
      <input id="filter" aria-label="Value" value={value.value} placeholder={examples[field.value]} onInput={(e) => (value.value = e.currentTarget.value)} />
      <button type="submit">Select</button>
      {first && <button type="button" onClick={() => select("actor", "")}>Show all</button>}
    </form>
  );
}

function Row({ of: a, names }: { of: Action; names: Map<string, string> }) {
  const name = names.get(a.actor);
  const subject = names.get(a.subject);
  const detail = Object.entries(a.detail as Record<string, unknown>);
  const only = (field: Field, value: string, shown: string) => <button type="button" class="tag" title={`Only entries of the ${field} ${value}`} onClick={() => select(field, value)}>{shown}</button>;
  return (
    <tr><td><Clock at={a.at} /></td><td>{only("actor", a.actor, name ?? a.actor)}</td><td>{only("action", a.action, a.action)}</td>
      <td>{only("subject", a.subject, subject ?? a.subject)}</td>
      <td class="detail">{detail.map(([k, v]) => <span><span class="quiet">{k}</span> {typeof v === "string" ? v : JSON.stringify(v)} </span>)}</td>
      <td class="mono quiet">{a.address ?? "–"}</td></tr>
  );
}
