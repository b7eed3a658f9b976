// What the list of runs shows if no run matches its filter: what the filter may mean, and which of its terms leaves nothing.
import { useEffect } from "preact/hooks";
import { call } from "../api";
import { clock } from "../clock";
import { runs } from "../lib/counts";
import { countQueryOf, formatFilter, formatTerm, mostTried, valueOf, withoutTerm, withTerm, type Filter, type Term } from "../lib/filter";
import { sameTitle } from "../lib/palette";
import type { Order } from "../lib/runlist";
import { go, href, project } from "../location";
import { Empty, Loading } from "../parts/notice";
import { useResource } from "../resource";

export interface NoMatchProps {
  filter: Filter;
  orderBy: Order;
  change: (f: Filter) => void;
}

interface Without {
  term: Term;
  count: number;
  atLeast: boolean;
}

// Known is what the server says about a filter that no run matches.
interface Known {
  // The names of the workflows that have the title which the filter has in place of a name.
  workflows: string[];
  // The terms without which runs match, that which excludes most first.
  without: Without[];
}

async function workflowsOf(filter: Filter, signal: AbortSignal): Promise<string[]> {
  const text = valueOf(filter, "workflow");
  return text === "" ? [] : sameTitle(await call(project.value, "GET /v1/search", { query: { text }, signal }), text);
}

// withoutEach counts the runs that match without each term, one after the other.
async function withoutEach(filter: Filter, orderBy: Order, signal: AbortSignal): Promise<Without[]> {
  const all: Without[] = [];
  for (const term of filter.length > 1 ? filter.slice(0, mostTried) : []) {
    const query = countQueryOf(withoutTerm(filter, term), orderBy, clock.now());
    all.push({ term, ...await call(project.value, "GET /v1/runs/count", { query, signal }) });
  }
  return all.filter((w) => w.count > 0).sort((a, b) => b.count - a.count);
}

// NoMatch says that no run matches. A title in place of the name of a workflow, if one workflow has it, becomes the name.
export function NoMatch({ filter, orderBy, change }: NoMatchProps) {
  const known = useResource<Known>(async (signal) => {
    const workflows = await workflowsOf(filter, signal);
    return { workflows, without: workflows.length > 0 ? [] : await withoutEach(filter, orderBy, signal) };
  }, [project.value, formatFilter(filter), orderBy]);
  const { workflows = [], without = [] } = known.data.value ?? {};
  const named = workflows.map((value) => withTerm(filter, { field: "workflow", value }));
  const meant = named.length === 1 ? formatFilter(named[0]!) : "";
  useEffect(() => {
    if (meant) go(href(["runs"], { q: meant, order: orderBy === "created" ? "" : orderBy }), "replace");
  }, [meant]);
  if (meant || known.loading.value && !known.data.value) return <Loading what="what the filter may mean" />;
  return (
    <Empty title="No run matches">
      <p class="mono">{formatFilter(filter)}</p>
      {named.length > 0 && <p>Several workflows are called {valueOf(filter, "workflow")}:</p>}
      {named.map((f) => <button type="button" class="mono" onClick={() => change(f)}>{valueOf(f, "workflow")}</button>)}
      {without.map((w) => (
        <button type="button" onClick={() => change(withoutTerm(filter, w.term))}>without <span class="mono">{formatTerm(w.term)}</span>: {runs(w)}</button>
      ))}
      {filter.length > 1 && known.data.value && without.length + named.length === 0 && <p class="quiet">None matches without {filter.length > mostTried ? `one of the first ${mostTried} terms` : "one of its terms"} either.</p>}
      <button type="button" onClick={() => change([])}>Show all runs</button>
    </Empty>
  );
}
