// The filter of the runs, as chips and as text.
import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import {
  fields, formatFilter, formatTerm, parseFilter, runIdIn, statuses, statusesOf, withoutTerm, withStatus, withTerm, type Filter,
} from "../lib/filter";
import { titleOf } from "../lib/names";
import { Needs } from "./needs";

export interface ChipsProps {
  filter: Filter;
  change: (f: Filter) => void;
  open: (runId: string) => void;
}

export function Chips({ filter, change, open }: ChipsProps) {
  const text = useSignal("");
  const problem = useSignal("");
  const shown = useComputed(() => text.value);
  useEffect(() => {
    problem.value = "";
  }, [formatFilter(filter)]);
  const submit = (e: Event) => {
    e.preventDefault();
    const id = runIdIn(text.value);
    if (id) return open(id);
    const added = parseFilter(text.value);
    problem.value = added.problem;
    if (added.problem) return;
    text.value = "";
    change(added.filter.reduce(withTerm, filter));
  };
  const named = statusesOf(filter);
  return (
    <div class="filter">
      <div class="segmented" role="group" aria-label="Status">
        <button type="button" aria-pressed={named.length === 0} onClick={() => change(withoutTerm(filter, { field: "status", value: "" }))}>all</button>
        {statuses.map((s) => (
          <button type="button" aria-pressed={named.includes(s)} onClick={() => change(withoutTerm(withStatus(filter, s), { field: "is", value: "" }))}>{s}</button>
        ))}
      </div>
      <Needs filter={filter} change={change} />
      <form role="search" onSubmit={submit}>
        <input type="search" id="filter" aria-label="Filter runs" placeholder="workflow:order  customer=7  created:24h  or a run’s ID"
          value={shown.value} onInput={(e) => (text.value = e.currentTarget.value)} list="filter-fields"
          aria-invalid={problem.value !== ""} aria-describedby="filter-problem" spellcheck={false} autocomplete="off" />
        <datalist id="filter-fields">{fields.map((f) => <option value={`${f}:`} />)}</datalist>
        <kbd>/</kbd>
      </form>
      {filter.filter((t) => t.field !== "status" && t.field !== "is").map((t) => (
        <button type="button" class="chip" onClick={() => change(withoutTerm(filter, t))} aria-label={`Remove filter ${formatTerm(t)}`} title={formatTerm(t)}>
          {formatTerm(t.field === "workflow" ? { ...t, value: titleOf(t.value) } : t)}<span aria-hidden="true">×</span>
        </button>
      ))}
      <p id="filter-problem" class="problem" role="status">{problem.value}</p>
    </div>
  );
}
