// The family of a run: its parents up to the root, and the runs that it started, level by level.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Run } from "../api.gen";
import { addressOf, call, server } from "../api";
import { tick } from "../clock";
import { formatDuration } from "../lib/duration";
import { titleOf } from "../lib/names";
import { shortId } from "../lib/path";
import { curl } from "../lib/shell";
import { durationOf, hasEnded, stateOfRun } from "../lib/status";
import { href, project } from "../location";
import { Also } from "../parts/copy";
import { Status } from "../parts/icon";
import { Name } from "../parts/name";
import { Trouble } from "../parts/notice";
import { Age } from "../parts/time";
import { useResource } from "../resource";
import { readRun } from "./readrun";

const pageSize = 50;
const mostParents = 20; // that are read, one after the other

export function Family({ run }: { run: Run }) {
  const parents = useResource(async (signal) => {
    const list: Run[] = [];
    for (let id = run.parentId; id && list.length < mostParents; id = list[0]!.parentId) {
      list.unshift(await readRun(id, signal));
    }
    return list;
  }, [run.id]);
  const above = parents.data.value ?? [];
  const children = { path: { id: run.id } };
  return (
    <>
      {parents.problem.value && <Trouble problem={parents.problem.value} retry={parents.refresh} />}
      {above[0]?.parentId && <p class="quiet">There are more parents above. <a href={href(["runs", above[0].id, "family"])}>Their family</a></p>}
      <table class="list family" aria-label="Family of the run">
        <thead><tr><th>Run</th><th>Status</th><th>Key</th><th class="num">Took</th><th class="num">Created</th></tr></thead>
        <tbody>
          {above.map((r, i) => <Row key={r.id} run={r} level={i} />)}
          <Branch key={run.id} run={run} level={above.length} open self />
        </tbody>
      </table>
      <Also what="The children" cli={`stepwell runs children ${run.id}`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/children", children))} />
    </>
  );
}

interface RowProps {
  run: Run;
  level: number;
  open?: boolean;
  self?: boolean;
  toggle?: () => void;
}

function Row({ run: r, level, open, self, toggle }: RowProps) {
  return (
    <tr class={self ? "self" : ""} aria-current={self ? "true" : undefined}>
      <td style={{ paddingLeft: `${8 + level * 20}px` }}>
        {toggle ? <button type="button" class="twist" aria-expanded={open} aria-label={`Children of ${titleOf(r.workflow)} ${shortId(r.id)}`} onClick={toggle}>{open ? "▾" : "▸"}</button>
          : <span class="twist" />}
        <a class="strong" href={href(["runs", r.id])}><Name of={r.workflow} /></a> <span class="mono quiet">{shortId(r.id)}</span>{self && <span class="quiet"> this run</span>}</td>
      <td><Status {...stateOfRun(r, tick.value)} /></td>
      <td>{r.key ?? <span class="quiet none">–</span>}</td>
      <td class="num">{formatDuration(durationOf(r, tick.value))}</td>
      <td class="num"><Age at={r.createdAt} /></td>
    </tr>
  );
}

// Branch is a run, and its children if it is open.
function Branch({ run, level, open: first = false, self }: RowProps) {
  const open = useSignal(first);
  return (
    <>
      <Row run={run} level={level} open={open.value} self={self} toggle={() => (open.value = !open.value)} />
      {open.value && <Children run={run} level={level + 1} />}
    </>
  );
}

function Children({ run, level }: { run: Run; level: number }) {
  const pages = useSignal(1);
  const list = useResource(async (signal) => {
    const all: Run[] = [];
    let cursor: string | undefined;
    for (let n = 0; n < pages.value && (n === 0 || cursor); n++) {
      const page = await call(project.value, "GET /v1/runs/{id}/children", { path: { id: run.id }, query: { limit: pageSize, order: "asc", cursor }, signal });
      all.push(...page.data);
      cursor = page.cursor;
    }
    return { all, more: cursor !== undefined };
  }, [run.id], { on: hasEnded(run) ? [] : ["runs"], version: [run.lastSeq, run.status, pages.value].join() });
  const note = (children: ComponentChildren) => <tr class="note"><td colSpan={5} style={{ paddingLeft: `${8 + level * 20}px` }}>{children}</td></tr>;
  const trouble = list.problem.value && note(<Trouble problem={list.problem.value} retry={list.refresh} />);
  if (!list.data.value) return trouble ?? note(<span class="quiet">Reading the children …</span>);
  const { all, more } = list.data.value;
  return (
    <>
      {trouble}
      {all.map((r) => <Branch key={r.id} run={r} level={level} />)}
      {all.length === 0 && note(<span class="quiet">It has started no runs.</span>)}
      {more && note(<button type="button" onClick={() => (pages.value += 1)}>More children ({all.length.toLocaleString("en")}+)</button>)}
    </>
  );
}
