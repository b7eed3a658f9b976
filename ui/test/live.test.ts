import { test } from "node:test";
import assert from "node:assert/strict";
import type { LiveRuns, Run } from "../src/api.gen";
import { listOf, placeOf, rowsOf, withChanges, withPage, type RunList } from "../src/lib/runlist";
import { Frames } from "../src/lib/sse";
import { random } from "./random";

function run(n: number, lastSeq: number, status: Run["status"]): Run {
  return {
    id: `wrun_${n}`, workflow: "order", deployment: "shop", driver: "server", status, attributes: {}, lastSeq,
    createdAt: new Date(1_700_000_000_000 + Math.floor(n / 3) * 1000).toISOString(),
  };
}

// The server: runs of which the list shows those that run.
class Server {
  private runs = new Map<number, Run>();
  readonly told: LiveRuns[] = [];

  change(n: number): void {
    const r = this.runs.get(n);
    const next = run(n, (r?.lastSeq ?? 0) + 1, ["pending", "running", "running", "completed"][Math.min(r?.lastSeq ?? 0, 3)] as Run["status"]);
    if (r?.status === "completed") return;
    this.runs.set(n, next);
    this.told.push(next.status === "running" ? { runs: [next], gone: [] } : { runs: [], gone: [{ id: next.id, lastSeq: next.lastSeq }] });
  }

  page(limit: number, below = "~"): { data: Run[]; cursor?: string } {
    const all = [...this.runs.values()].filter((r) => r.status === "running" && placeOf(r, "created") < below).sort((a, b) => (placeOf(a, "created") < placeOf(b, "created") ? 1 : -1));
    return { data: all.slice(0, limit), ...(all.length > limit && { cursor: placeOf(all[limit - 1]!, "created") }) };
  }
}

function shuffle<T>(list: T[], next: () => number): T[] {
  return list.map((v) => ({ v, at: next() })).sort((a, b) => a.at - b.at).map((e) => e.v);
}

test("a list that follows shows what a new read shows, whatever the order of messages", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const next = random(seed);
    const server = new Server();
    const some = (times: number) => {
      for (let i = 0; i < times; i++) server.change(Math.floor(next() * 40));
    };
    some(40);
    let list = listOf(server.page(8), "created");
    if (list.cursor && next() < 0.5) list = withPage(list, server.page(8, list.cursor));
    const from = server.told.length;
    some(60);
    const since = server.told.slice(from);
    const early = server.told.slice(Math.max(0, from - 10), from); // what the page has already
    list = shuffle([...since, ...since.slice(0, 20), ...early], next).reduce(withChanges, list);
    const want = server.page(1000).data.filter((r) => placeOf(r, "created") >= list.end);
    assert.deepEqual(rowsOf(list), want, `seed ${seed}`);
    if (next() < 0.3) { // a reset
      list = since.reduce(withChanges, listOf(server.page(8), "created"));
      assert.deepEqual(rowsOf(list), server.page(8).data, `seed ${seed} after a reset`);
    }
  }
});

test("news of a run that the list does not reach changes nothing", () => {
  const list: RunList = listOf({ data: [run(30, 2, "running")], cursor: "more" }, "created");
  assert.deepEqual(rowsOf(withChanges(list, { runs: [run(3, 5, "running")], gone: [] })), rowsOf(list));
});

test("server-sent events come in pieces", () => {
  const text = ": nothing\n\nevent: hello\nid: 7::0\ndata: {\"a\":1}\n\n: idle\nid: 8::0\n\nevent: runs\ndata: {}\n\n";
  const want = [["", "", ""], ["hello", "7::0", '{"a":1}'], ["", "8::0", ""], ["runs", "", "{}"]];
  for (let size = 1; size <= text.length; size++) {
    const frames = new Frames();
    const got = [];
    for (let i = 0; i < text.length; i += size) got.push(...frames.push(text.slice(i, i + size)));
    assert.deepEqual(got.map((s) => [s.kind, s.id, s.data]), want);
  }
});

test("a list does not grow with the runs that leave it", () => {
  let list = listOf({ data: [run(0, 1, "running")] }, "created");
  for (let n = 1; n < 10_000; n++) list = withChanges(list, { runs: [], gone: [{ id: `wrun_${n}`, lastSeq: 2 }] });
  assert.ok(list.gone.size <= 2000);
  list = withChanges(list, { runs: [run(9_999, 1, "running")], gone: [] }); // late
  assert.deepEqual(rowsOf(list).map((r) => r.id), ["wrun_0"]);
});
