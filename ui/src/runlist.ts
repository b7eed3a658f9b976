// The list of runs that a page shows: read once, and then kept as the live connection tells.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { call } from "./api";
import type { LiveRuns, Run } from "./api.gen";
import { clock } from "./clock";
import { queryOf, type Filter } from "./lib/filter";
import { listOf, placeOf, rowsOf, withNews, withPage, type Order, type RunList } from "./lib/runlist";
import { covered, useLive } from "./live";
import { project } from "./location";
import { useResource, type Resource } from "./resource";

const pageSize = 100;
const largestPage = 1000;
const pollEvery = 5000;
// A list that has grown by so many rows is read anew, so that a page that stays open does not grow for ever.
const mostNew = 200;
// While somebody reads further down, the rows below the newest ones stay: so many wait above them at most.
const mostWaiting = 5000;

export interface Runs {
  // The rows to show; null before the first answer.
  rows: Run[] | null;
  // How many newer runs wait until the reader asks for them, or is at the top of the list.
  waiting: number;
  showNew: () => void;
  first: Resource<boolean>;
  // Whether there are older runs, and reads them.
  more: boolean;
  reading: boolean;
  readOlder: () => Promise<void>;
}

const atTop = () => window.scrollY < 40;

export function useRuns(filter: Filter, text: string, by: Order): Runs {
  const scope = `${project.value} ${by} ${text}`;
  const query = () => ({ ...queryOf(filter, clock.now()), ...(by === "ended" && { orderBy: by }) });
  const kept = useSignal<{ scope: string; list: RunList; read: number } | null>(null);
  const seen = useSignal(""); // the place of the newest run that is shown
  const reading = useSignal(false);
  const news = useRef({ readers: 0, list: [] as LiveRuns[] }); // since a reading began, while there is one
  const list = kept.value?.scope === scope ? kept.value.list : null;
  const read = async (signal: AbortSignal) => {
    const now = kept.peek();
    const shown = now?.scope !== scope ? 0 : atTop() ? now.read : now.list.runs.size;
    const limit = Math.max(pageSize, Math.min(largestPage, shown));
    await withNewsSince(() => call(project.value, "GET /v1/runs", { query: { ...query(), limit }, signal }),
      (page, told) => keep(told.reduce(withNews, listOf(page, by)), page.data.length));
    return true;
  };
  // What is told while a page is read may be newer than the page.
  const withNewsSince = async <T>(ask: () => Promise<T>, use: (page: T, told: LiveRuns[]) => void) => {
    const n = news.current;
    if (n.readers++ === 0) n.list = [];
    try {
      use(await ask(), n.list);
    } finally {
      n.readers--;
    }
  };
  const keep = (l: RunList, read: number) => {
    if (atTop() || kept.peek()?.scope !== scope) seen.value = newest(l);
    kept.value = { scope, list: l, read };
  };
  const first = useResource(read, [scope], covered.value ? 0 : pollEvery);
  useLive(`runs ${by} ${text}`, () => ({ ...queryOf(filter, clock.now()), runs: true }), (m) => {
    if (m.kind !== "runs") return;
    if (news.current.readers > 0) news.current.list.push(m.data);
    const now = kept.peek();
    if (now?.scope !== scope) return;
    const next = withNews(now.list, m.data);
    keep(next, now.read);
    if (next.runs.size > now.read + (atTop() ? mostNew : mostWaiting)) first.refresh();
  }, first.refresh);
  const showNew = () => (seen.value = list ? newest(list) : "");
  useEffect(() => {
    const scrolled = () => atTop() && showNew();
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  });
  const readOlder = async () => {
    if (!list?.cursor || reading.value) return;
    reading.value = true;
    try {
      const next = { ...query(), limit: pageSize, cursor: list.cursor };
      await withNewsSince(() => call(project.value, "GET /v1/runs", { query: next }), (page, told) => {
        const now = kept.peek();
        if (now?.scope === scope) keep(told.reduce(withNews, withPage(now.list, page)), now.read + page.data.length);
      });
    } catch {
      first.refresh(); // shows what is wrong
    }
    reading.value = false;
  };
  const all = list && rowsOf(list);
  const rows = all?.filter((r) => placeOf(r, by) <= seen.value) ?? null;
  return {
    rows, waiting: all && rows ? all.length - rows.length : 0, showNew, first,
    more: list?.cursor !== undefined, reading: reading.value, readOlder,
  };
}

function newest(l: RunList): string {
  let place = "";
  for (const r of l.runs.values()) if (placeOf(r, l.by) > place) place = placeOf(r, l.by);
  return place;
}
