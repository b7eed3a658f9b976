// The list of runs: filters in the address, read again while it is looked at, and what one does with many of them.
import { useSignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect } from "preact/hooks";
import { addressOf, call, server } from "../api";
import { clock } from "../clock";
import { useKeys } from "../shortcuts";
import { focusLeft, noteFocus, useRuns } from "../runlist";
import { useResource } from "../resource";
import { go, href, project, search } from "../location";
import type { Run } from "../api.gen";
import { columnNames, formatColumns, parseColumns, titleOfColumn, usualColumns, withColumn } from "../lib/columns";
import { notBelow, runs } from "../lib/counts";
import { commandOf, countQueryOf, formatFilter, needOf, parseFilter, queryOf, valueOf, type Filter } from "../lib/filter";
import type { Order } from "../lib/runlist";
import { through, toggle } from "../lib/selection";
import { curl } from "../lib/shell";
import { Chips } from "../parts/chips";
import { Commands } from "../parts/copy";
import { Gated } from "../parts/gated";
import { lazyPart } from "../parts/lazy";
import { Empty, Loading, Trouble } from "../parts/notice";
import { may, needs } from "../session";
import { kept } from "../settings";
import type { Action } from "../lib/bulk";
import type { BulkProps } from "./bulk";
import type { NoMatchProps } from "./nomatch";
import type { StartProps } from "./start";
import { Selection } from "./selection";
import { Table } from "./runstable";

const countWeight = 4; // counting reads more than one shows

const Start = lazyPart<StartProps>("the form", async () => (await import("./tools")).Start);
const Bulk = lazyPart<BulkProps>("the form", async () => (await import("./tools")).Bulk);

const NoMatch = lazyPart<NoMatchProps>("why", async () => (await import("./tools")).NoMatch);

const keptColumns = kept<string>("columns", "");

type Dialog = "start" | { action: BulkProps["action"]; target: BulkProps["target"] } | null;

// Runs is the list of the runs that match the filter in the address. What is no filter matches nothing.
export function Runs() {
  const text = search.value.get("q") ?? "";
  const { filter, problem } = parseFilter(text);
  const orderBy = orderOf(search.value.get("order"), filter);
  const dialog = useSignal<Dialog>(null);
  useEffect(() => {
    if (search.value.has("start")) dialog.value = "start";
  }, [search.value.get("start")]);
  const show = (q: string, order: string) => go(href(["runs"], { q, order: order === "created" ? "" : order }));
  const change = (f: Filter) => show(formatFilter(f), orderBy);
  const close = () => {
    dialog.value = null;
    if (search.value.has("start")) show(text, orderBy);
  };
  const query = { ...queryOf(filter, clock.now()), ...(orderBy !== "created" && { orderBy }) };
  return (
    <main class="page">
      <header class="page-head"><h1>Runs</h1>
        <button type="button" class="primary" disabled={!may("invoke")} title={may("invoke") ? "" : needs("invoke")} onClick={() => (dialog.value = "start")}>Start a run …</button>
        {!problem && <Commands cli={commandOf(filter) + (orderBy === "created" ? "" : ` --order-by ${orderBy}`)} curl={curl(server, "GET", addressOf("GET /v1/runs", { query }))} />}
      </header>
      <Chips filter={filter} change={change} open={(id) => go(href(["runs", id]))} />
      {problem ? <Misread problem={problem} /> : <Listed filter={filter} text={text} orderBy={orderBy} show={show} change={change} dialog={dialog} close={close} />}
      {dialog.value === "start" && <Start workflow={search.value.get("start") || valueOf(filter, "workflow")} close={close} />}
    </main>
  );
}

// orderOf returns the order that the address names, if the runs of the filter have one of the kind.
function orderOf(named: string | null, filter: Filter): Order {
  if (named === "need") return named;
  return named === "ended" && !needOf(filter) ? named : "created";
}

const orders: Record<Order, { title: string; first: string }> = {
  created: { title: "by creation", first: "newest first" },
  ended: { title: "by end", first: "last ended first" },
  need: { title: "by need", first: "those first that need somebody most" },
};

function Misread({ problem }: { problem: string }) {
  return (
    <Empty title="The address has no filter that can be read">
      <p class="problem" role="alert">{problem}</p>
      <a class="button" href={href(["runs"])}>Show all runs</a>
    </Empty>
  );
}

interface ListedProps {
  filter: Filter;
  text: string;
  orderBy: Order;
  show: (q: string, order: string) => void;
  change: (f: Filter) => void;
  dialog: Signal<Dialog>;
  close: () => void;
}

function Listed({ filter, text, orderBy, show, change, dialog, close }: ListedProps) {
  const columns = parseColumns(keptColumns.value) ?? usualColumns;
  const focused = useSignal(-1);
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const anchor = useSignal("");
  const scope = `${project.value} ${orderBy} ${text}`;
  const list = useRuns(filter, text, orderBy);
  const { first, readOlder } = list;
  const rows = list.rows ?? [];
  const ids = rows.map((r) => r.id);
  const count = useResource((signal) => call(project.value, "GET /v1/runs/count", { query: countQueryOf(filter, orderBy, clock.now()), signal }), [scope], { on: ["runs"], weight: countWeight });
  useEffect(() => {
    selected.value = new Set();
  }, [scope]);
  useLayoutEffect(() => {
    const at = ids.indexOf(focusLeft());
    if (at >= 0) focusRow(at);
  }, []);
  // The focus goes with its row, which new rows may move to another part of the table.
  const holder = document.activeElement;
  useLayoutEffect(() => {
    const at = /^run-\d+$/.test(holder?.id ?? "") ? ids.indexOf(holder!.getAttribute("title") ?? "") : -1;
    if (at < 0) return;
    if (document.activeElement !== holder) focusRow(at, true);
    else if (focused.value !== at) focused.value = at;
  });
  // here is the row with the focus: new rows move those below them, and with them the focus.
  const here = () => Number(/^run-(\d+)$/.exec(document.activeElement?.id ?? "")?.[1] ?? focused.value);
  // focusRow moves the focus. The page follows it, unless the row was moved by others: new rows wait in a page that is not
  // at its top.
  const focusRow = (at: number, preventScroll = false) => {
    focused.value = at; // its row exists from the next frame on
    const row = () => document.getElementById(`run-${at}`);
    if (row()) row()!.focus({ preventScroll });
    else requestAnimationFrame(() => requestAnimationFrame(() => row()?.focus({ preventScroll })));
  };
  const move = (by: number) => focusRow(Math.max(0, Math.min(rows.length - 1, here() + by)));
  const select = (id: string, range: boolean) => {
    selected.value = range ? through(selected.value, ids, anchor.value, id) : toggle(selected.value, id);
    anchor.value = id;
  };
  const selectFocused = (range: boolean) => {
    const id = ids[here()];
    if (id) select(id, range);
  };
  useKeys({
    j: () => move(1), k: () => move(-1), x: () => selectFocused(false), X: () => selectFocused(true),
  });
  const refresh = () => {
    selected.value = new Set();
    first.refresh();
    count.refresh();
  };
  const focus = (at: number) => {
    focused.value = at;
    noteFocus(ids[at] ?? "");
  };
  const empty = list.rows !== null && rows.length === 0 && !list.more;
  const byReason = orderBy === "need" || needOf(filter) !== ""; // no request changes all runs of such a list
  const total = count.data.value && notBelow(count.data.value, rows.length);
  const d = dialog.value;
  return (
    <>
      {(rows.length > 0 || filter.length > 0) && <Toolbar columns={columns} choose={(c) => (keptColumns.value = formatColumns(c))} orderBy={orderBy}
        order={(o) => show(text, o)} rows={rows} all={filter.length > 0 && rows.length > 0 && !byReason ? (action) => (dialog.value = { action, target: { filter } }) : null} count={rows.length > 0 && total ? `${runs(total)}, ${orders[orderBy].first}` : ""} />}
      {first.problem.value && <Trouble problem={first.problem.value} retry={first.refresh} />}
      {list.rows === null && !first.problem.value && <Loading what="runs" />}
      {list.waiting > 0 && <p class="new-rows" role="status"><button type="button" onClick={list.showNew}>
        {list.waiting} new {list.waiting === 1 ? "run matches" : "runs match"}: show</button></p>}
      {rows.length > 0 && <Table rows={rows} columns={columns} filter={filter} change={change} focused={focused.value} focus={focus}
        isSelected={(id) => selected.value.has(id)} select={select} selectShown={(on) => (selected.value = on ? new Set(ids) : new Set())} />}
      {empty && (filter.length > 0 ? <NoMatch filter={filter} orderBy={orderBy} change={change} /> : <NoRuns />)}
      {list.more && <p class="more"><button type="button" onClick={readOlder} disabled={list.reading}>
        {list.reading ? "Reading …" : rows.length === 0 ? "None of the newest match: look at older runs" : "Older runs"}</button></p>}
      {selected.value.size > 0 && <Selection runs={rows.filter((r) => selected.value.has(r.id))} count={byReason ? null : total}
        filter={filter} act={(action, target) => (dialog.value = { action, target })} clear={() => (selected.value = new Set())} />}
      {d !== null && typeof d === "object" && <Bulk action={d.action} target={d.target} done={refresh} close={close} />}
    </>
  );
}

interface ToolbarProps {
  columns: string[];
  choose: (columns: string[]) => void;
  orderBy: string;
  order: (by: string) => void;
  rows: Run[];
  // Acts on all that match; null for a list without a filter, of which nobody means all.
  all: ((action: Action) => void) | null;
  count: string;
}

function Toolbar({ columns, choose, orderBy, order, rows, all, count }: ToolbarProps) {
  const attributes = [...new Set([...rows.flatMap((r) => Object.keys(r.attributes)), ...columns.flatMap((c) => c.split("attribute.")[1] ?? [])])].sort().slice(0, 20);
  return (
    <div class="toolbar">
      <select aria-label="Order" value={orderBy} onChange={(e) => order(e.currentTarget.value)} title="Only what an index has: other orders would read all runs.">
        {Object.entries(orders).map(([by, o]) => <option value={by}>{o.title}</option>)}
      </select>
      <details class="columns"><summary>Columns</summary>
        <div>
          {[...columnNames, ...attributes.map((a) => `attribute.${a}`)].map((c) => (
            <label class="check"><input type="checkbox" checked={columns.includes(c)} onChange={() => choose(withColumn(columns, c))} />{titleOfColumn(c)}</label>
          ))}
          <button type="button" onClick={() => choose(usualColumns)}>The usual ones</button>
        </div>
      </details>
      {all && <Gated permission="write" act={() => all("cancel")}>Cancel all …</Gated>}
      {all && <Gated permission="write" act={() => all("rerun")}>Rerun all …</Gated>}
      <span class="quiet count">{count}</span>
    </div>
  );
}

function NoRuns() {
  const put = curl(server, "PUT", "/v1/deployments/my-function", JSON.stringify({ url: "http://127.0.0.1:3000" }));
  const start = curl(server, "POST", "/v1/runs", JSON.stringify({ workflow: "order", deployment: "my-function" }));
  return (
    <Empty title="There are no runs yet">
      <ol class="first-steps">
        <li>Point something at this server: any HTTP endpoint.
          <Commands open cli="stepwell deployments add my-function http://127.0.0.1:3000" curl={put} /></li>
        <li>Start a run.<Commands open cli="stepwell runs start order --deployment my-function" curl={start} /></li>
        <li>It appears here by itself.</li>
      </ol>
    </Empty>
  );
}
