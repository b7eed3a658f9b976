import { test } from "node:test";
import assert from "node:assert/strict";
import { formatAge, formatDuration, parseDuration } from "../src/lib/duration";
import { allThatMatch, begun, conditionsOf, eachOf, keep, nameOf, statusesFor, type Batch, type Send } from "../src/lib/bulk";
import { formatColumns, parseColumns, usualColumns, withColumn } from "../src/lib/columns";
import { Answers } from "../src/lib/answers";
import { filterOf, isSearched, matching, sameTitle, sentenceOf, step } from "../src/lib/palette";
import { through, toggle } from "../src/lib/selection";
import { withNeed, withStatus, commandOf, countQueryOf, formatFilter, parseFilter, queryOf, runIdIn, statuses, type Filter } from "../src/lib/filter";
import { Matcher } from "../src/lib/keys";
import { barOf } from "../src/lib/bars";
import { pagesOf, Recent, visibleRange } from "../src/lib/pages";
import { fill, pageOf, pathOf } from "../src/lib/path";
import { Problem, problemOf } from "../src/lib/problem";
import { quote, curl } from "../src/lib/shell";
import { random } from "./random";
import { formatMoments, formatShort, formatTime } from "../src/lib/zone";

test("durations have two units", () => {
  const table: Array<[number, string]> = [
    [0, "0 ms"], [812, "812 ms"], [4249, "4.2 s"], [9999, "9.9 s"], [59_999, "59 s"], [134_000, "2 m 14 s"], [120_000, "2 m"],
    [3_720_000, "1 h 2 m"], [273_600_000, "3 d 4 h"], [-5000, "−5.0 s"], [NaN, "–"],
  ];
  for (const [ms, want] of table) assert.equal(formatDuration(ms), want);
});

test("ages have one unit", () => {
  for (const [ms, want] of [[500, "now"], [12_000, "12 s ago"], [-7_200_000, "in 2 h"], [259_200_000, "3 d ago"]] as const) {
    assert.equal(formatAge(ms), want);
  }
  assert.equal(parseDuration("1d12h"), 129_600_000);
  for (const wrong of ["", "24", "h", "1w", "24h "]) assert.equal(parseDuration(wrong), null);
});

test("times are in the chosen zone, also when summer time ends", () => {
  const before = new Date("2026-10-25T00:59:59.204Z");
  const after = new Date("2026-10-25T01:00:00Z");
  assert.equal(formatTime(before, "Europe/Berlin"), "2026-10-25 02:59:59.204 Europe/Berlin");
  assert.equal(formatTime(after, "Europe/Berlin"), "2026-10-25 02:00:00.000 Europe/Berlin");
  assert.equal(formatShort(before, after, "UTC"), "00:59:59");
  assert.equal(formatShort(before, new Date("2026-10-27T00:00:00Z"), "UTC"), "2026-10-25 00:59");
});

test("filters survive the way through their text", () => {
  const next = random(7);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)]!;
  const letters = ["a", "7", " ", '"', "\\", ":", "=", "é", "–", "'"];
  const word = () => Array.from({ length: 1 + Math.floor(next() * 6) }, () => pick(letters)).join("");
  for (let i = 0; i < 2000; i++) {
    const all: Filter = [
      { field: "workflow", value: word() }, { field: "status", value: pick(statuses) }, { field: "key", value: word() },
      { field: "created", value: pick(["24h", "2026-11-22T14:00:00Z"]) }, { attribute: "tier", value: word() }, { attribute: "a.b", value: "" }, { attribute: word() || "x", value: word() },
    ];
    const filter = all.filter(() => next() < 0.5);
    const parsed = parseFilter(formatFilter(filter));
    assert.equal(parsed.problem, "");
    assert.deepEqual(parsed.filter, filter);
  }
});

test("what is no filter says why", () => {
  for (const [text, word] of [["order", "not a filter"], ["colour:red", "not a field"], ["status:done", "not a status"], ["status:failed,", "not a status"], ["ended:soon", "not a time"], ["created:soon", "not a time"], ["key:", "no value"]] as const) {
    assert.ok(parseFilter(text).problem.includes(word), `${text}: ${parseFilter(text).problem}`);
  }
});

test("filters become queries and commands", () => {
  const { filter } = parseFilter('workflow:order status:failed created:1h tier="very gold"');
  assert.deepEqual(queryOf(filter, Date.parse("2026-11-22T14:00:00Z")), {
    workflow: "order", status: ["failed"], createdAfter: "2026-11-22T13:00:00.000Z", "attribute.tier": "very gold",
  });
  assert.equal(commandOf(filter), "stepwell runs list --workflow order --status failed --created-after 1h --attr 'tier=very gold'");
  assert.equal(runIdIn(" wrun_01JD5A8R8D0000000000000000 "), "wrun_01JD5A8R8D0000000000000000");
  assert.equal(runIdIn("wrun_1"), null);
});

test("words are quoted for shells", () => {
  assert.equal(quote("it's"), `'it'\\''s'`);
  assert.equal(quote(""), "''");
  assert.equal(curl("http://h", "POST", "/v1/runs", '{"a":1}'), `curl -H "Authorization: Bearer $STEPWELL_API_KEY" http://h/v1/runs --json '{"a":1}'`);
  assert.equal(curl("http://h", "POST", "/v1/x"), `curl -X POST -H "Authorization: Bearer $STEPWELL_API_KEY" http://h/v1/x`);
});

test("pages have addresses below any base", () => {
  for (const base of ["", "/a/b"]) {
    const path = pathOf(base, "shop & co", "runs", "a/b");
    assert.deepEqual(pageOf(base, path), { project: "shop & co", segments: ["runs", "a/b"] });
    assert.deepEqual(pageOf(base, `${base}/ui/`), { project: "", segments: [] });
    assert.equal(pageOf(base, "/elsewhere"), null);
  }
  assert.equal(fill("/v1/runs/{id}/events", { id: "a/b" }, { type: ["x", "y"], limit: 5, no: undefined }), "/v1/runs/a%2Fb/events?type=x&type=y&limit=5");
});

test("only the rows around the viewport are read", () => {
  const range = visibleRange(1_300_000, 600, 26, 100_000, 8);
  assert.deepEqual(range, { first: 49_992, end: 50_032 });
  assert.deepEqual(pagesOf(range, 200), [249, 250]);
  assert.deepEqual(visibleRange(0, 600, 26, 3, 8), { first: 0, end: 3 });
  const recent = new Recent<number>(3);
  for (const page of [1, 2, 3, 1, 4]) recent.get(page) ?? recent.put(page, page);
  assert.deepEqual([1, 2, 3, 4].map((p) => recent.get(p)), [1, undefined, 3, 4]);
});

test("bars stay on their axis", () => {
  const next = random(3);
  for (let i = 0; i < 1000; i++) {
    const from = next() * 200 - 50;
    const b = barOf(from, from + next() * 200, 0, 100);
    assert.ok(b.left >= 0 && b.width > 0 && b.left + b.width <= 100.0001, JSON.stringify(b));
  }
});

test("keys make sequences", () => {
  const m = new Matcher();
  const pressed: string[] = [];
  const bindings = { "g r": () => pressed.push("runs"), r: () => pressed.push("r") };
  for (const [key, at] of [["g", 0], ["r", 500], ["g", 1000], ["r", 2500], ["x", 2600]] as const) m.press(key, at, bindings)?.();
  assert.deepEqual(pressed, ["runs", "r"]);
});

test("answers that are no errors of the server are explained", () => {
  const p = problemOf(403, '{"error":{"code":"forbidden","message":"no","details":{"allowed":["admin","write"]},"requestId":"r"}}', null);
  assert.deepEqual([p.code, p.requestId, p.details], ["forbidden", "r", { allowed: ["admin", "write"] }]);
  assert.equal(problemOf(502, "<html>", "7").retryAfter, 7);
});

test("a filter has several statuses", () => {
  const { filter } = parseFilter("status:failed");
  const two = withStatus(filter, "running");
  assert.equal(formatFilter(two), "status:running,failed");
  assert.deepEqual(queryOf(two, 0), { status: ["running", "failed"] });
  assert.equal(commandOf(two), "stepwell runs list --status running --status failed");
  assert.deepEqual(withStatus(filter, "failed"), []);
});

test("columns survive the way through their text", () => {
  const columns = ["workflow", "attribute.a,b=é", "attribute.tier"];
  assert.deepEqual(parseColumns(formatColumns(columns)), columns);
  assert.equal(parseColumns("%E0%A4%A,nothing,attribute."), null);
  assert.deepEqual(withColumn(usualColumns, "attribute.tier").indexOf("attribute.tier"), usualColumns.indexOf("tags") + 1);
  assert.deepEqual(withColumn(withColumn(usualColumns, "ended"), "ended"), usualColumns);
});

test("rows are selected one by one and through", () => {
  const rows = ["a", "b", "c", "d"];
  assert.deepEqual([...through(toggle(new Set(), "d"), rows, "d", "b")].sort(), ["b", "c", "d"]);
  assert.deepEqual([...through(new Set(), rows, "gone", "b")], ["b"]);
  assert.deepEqual([...toggle(new Set(["a"]), "a")], []);
});

test("bulk operations take what the API takes, and say what not", () => {
  const at = new Date("2026-11-22T14:00:00Z");
  const of = (text: string, action: "cancel" | "rerun" = "cancel") => conditionsOf(parseFilter(text).filter, action, at);
  assert.deepEqual(of("workflow:order created:1h before:2027-01-01T00:00:00Z tier=gold").conditions, {
    workflow: "order", createdAfter: "2026-11-22T13:00:00.000Z", createdBefore: "2026-11-22T14:00:00.000Z", attributes: { tier: "gold" },
  });
  assert.equal(of("").conditions.createdBefore, "2026-11-22T14:00:00.000Z");
  const rerun = of("error:card_declined", "rerun").conditions;
  assert.deepEqual([rerun.errorCode, rerun.endedBefore], ["card_declined", "2026-11-22T14:00:00.000Z"]);
  assert.ok(of("error:card_declined").problem.includes("error"));
  assert.ok(of("deployment:shop").problem.includes("deployment"));
  const states = (text: string, action: "cancel" | "rerun") => statusesFor(action, parseFilter(text).filter).join();
  assert.deepEqual([states("", "cancel"), states("status:failed,running", "cancel"), states("status:failed", "cancel")], ["pending,running", "running", ""]);
  assert.deepEqual([states("", "rerun"), states("status:running,cancelled", "rerun")], ["failed", "cancelled"]);
});

test("batches go on until none is left, and stop when they are not asked for", async () => {
  const sent: unknown[] = [];
  const answers = [{ matched: 1000, started: 999, refused: [{ runId: "r", message: "taken" }], more: true, cursor: "c" }, { matched: 7, started: 7, refused: [], more: false }];
  const send: Send = async (operation, _, body) => (sent.push([operation, body]), answers[sent.length - 1]);
  const got: Batch[] = [];
  for await (const b of allThatMatch(send, "rerun", ["failed"], { workflow: "order" }, { idempotencyKey: "k" })) got.push(b);
  assert.deepEqual(got.map((b) => b.changed), [999, 7]);
  const filter = { workflow: "order", status: "failed" };
  assert.deepEqual(sent, [
    ["POST /v1/runs/rerun", { filter, idempotencyKey: "k", limit: 100 }],
    ["POST /v1/runs/rerun", { filter, cursor: "c", idempotencyKey: "k", limit: 100 }]]);
  sent.length = 0;
  for await (const b of allThatMatch(send, "rerun", ["failed"], {}, { idempotencyKey: "k" })) if (b) break;
  assert.equal(sent.length, 1);
  const some: Send = async (_, path) => { if (path["id"] === "b") throw new Error("ended"); };
  const one = await eachOf(some, "cancel", ["a", "b"], { idempotencyKey: "k" }).next();
  assert.deepEqual(one.value, { matched: 2, changed: 1, refused: [{ runId: "b", message: "ended" }] });
  const away: Send = async () => { throw new Problem(0, "unreachable", "No answer came."); };
  await assert.rejects(async () => eachOf(away, "rerun", ["a"], { idempotencyKey: "k" }).next(), { code: "unreachable" });
});

test("a batch goes past pages without runs, and ends when its session does", async () => {
  const answers = [{ matched: 0, started: 0, more: true, cursor: "c" }, { matched: 1, started: 1, more: false }];
  const send: Send = async () => answers.shift();
  let changed = 0;
  for await (const b of allThatMatch(send, "rerun", ["failed"], {}, { idempotencyKey: "k" })) changed += b.changed;
  assert.equal(changed, 1);
  const over: Send = async () => { throw Object.assign(new Error("over"), { status: 401 }); };
  await assert.rejects(eachOf(over, "rerun", ["a"], { idempotencyKey: "k" }).next(), /over/);
});

test("a batch of reruns that is not done keeps its key, in all tabs", () => {
  const store = new Map<string, string>();
  const kept = () => ({ getItem: (n: string) => store.get(n) ?? null, setItem: (n: string, v: string) => void store.set(n, v) });
  const name = nameOf("default", parseFilter("workflow:order created:1h").filter);
  assert.equal(name, nameOf("default", parseFilter("workflow:order created:24h").filter));
  assert.notEqual(name, nameOf("default"));
  const at = (minute: string) => `2026-11-22T14:${minute}:00.000Z`;
  const batch = { key: "k", before: at("00") };
  assert.equal(begun(kept, name, at("01")), null);
  keep(kept, name, batch);
  assert.deepEqual(begun(kept, name, at("01")), batch);
  assert.equal(begun(kept, name, "2026-11-23T14:00:00.000Z"), null);
  keep(kept, name, { ...batch, done: at("02") });
  assert.equal(begun(kept, name, at("01"))?.key, "k"); // a dialog that was open before
  assert.equal(begun(kept, name, at("03")), null);
  const none = () => { throw new Error("denied"); };
  keep(none, name, batch);
  assert.equal(begun(none, name, at("01")), null);
});

test("the palette finds all words, and begins with those that begin", () => {
  const items = ["Start a run …", "Runs", "run it again"].map((name) => ({ kind: "page", name, open: () => {} }));
  assert.deepEqual(matching(items, "run").map((i) => i.name), ["Runs", "run it again", "Start a run …"]);
  assert.deepEqual(matching(items, "run start").map((i) => i.name), ["Start a run …"]);
  assert.deepEqual([step(0, -1, 3), step(2, 1, 3), step(0, 1, 0)], [2, 0, 0]);
});

test("a time without a zone is UTC in every browser", () => {
  const before = process.env["TZ"];
  process.env["TZ"] = "America/New_York";
  const query = queryOf(parseFilter("created:2026-11-22T14:00:00 before:2026-11-23").filter, 0);
  if (before === undefined) delete process.env["TZ"];
  else process.env["TZ"] = before;
  assert.deepEqual(query, { createdAfter: "2026-11-22T14:00:00.000Z", createdBefore: "2026-11-23T00:00:00.000Z" });
});

test("a text is searched unless it is a filter or the ID of a run", () => {
  for (const text of ["12345", "placeOrder", "two words"]) assert.ok(isSearched(text), text);
  for (const text of ["", "1", "order=1", "workflow:placeOrder", "wrun_01M7YXCWBVNNJ9PET3QA3W1ZGH", "x".repeat(257)]) assert.ok(!isSearched(text), text);
});

test("what is found becomes a filter, and the palette says what was not searched", () => {
  assert.equal(filterOf({ kind: "attribute", name: "a name", title: "" }, "very gold"), `"a name"="very gold"`);
  assert.equal(filterOf({ kind: "key", name: "12345", title: "12345" }, "12345"), "key:12345");
  const names = (searched: number, of: number, atLeast = false) => ({ searched, of, atLeast });
  for (const [attributes, workflows, want] of [
    [names(100, 120), names(3, 3), "Searched workflows, keys and 100 of 120 attribute names; type NAME=12345 to search one."],
    [names(100, 1001, true), names(1000, 1000, true), "Searched the first 1,000 workflows, keys and 100 of at least 1,001 attribute names; type NAME=12345 to search one."],
    [names(7, 7), names(3, 3), "Searched workflows, keys and all 7 attribute names."],
    [names(1, 1), names(3, 3), "Searched workflows, keys and the one attribute name."],
    [names(0, 0), names(3, 3), "Searched workflows, keys and no attributes: there are none."],
  ] as const) assert.equal(sentenceOf({ data: [], attributes, workflows }, "12345"), want);
});

test("a title means the workflows that have it, unless one is called so", () => {
  const none = { searched: 0, of: 0, atLeast: false };
  const found = (...hits: Array<[string, string]>) => ({ data: hits.map(([name, title]) => ({ kind: "workflow" as const, name, title })), attributes: none, workflows: none });
  const [one, other] = ["workflow//./a//placeOrder", "workflow//./b//placeOrder"];
  assert.deepEqual(sameTitle(found([one, "placeOrder"], ["placeOrders", "placeOrders"]), "placeorder"), [one]);
  assert.deepEqual(sameTitle(found([one, "placeOrder"], [other, "placeOrder"]), "placeOrder"), [one, other]);
  assert.deepEqual(sameTitle(found([one, "placeOrder"], ["placeOrder", "placeOrder"]), "placeOrder"), []);
});

test("a list by end counts runs that have ended, and one by need those that have not", () => {
  const query = (text: string, by: "created" | "ended" | "need") => countQueryOf(parseFilter(text).filter, by, 0);
  assert.deepEqual(query("workflow:order", "created"), { workflow: "order" });
  assert.deepEqual(query("workflow:order", "ended"), { workflow: "order", status: ["completed", "failed", "cancelled"] });
  assert.deepEqual(query("status:running,failed", "ended"), { status: ["failed"] });
  assert.deepEqual(query("is:stuck", "need"), { need: "stuck", status: ["pending", "running"] });
});

test("times of a list have seconds if one of them needs them", () => {
  assert.deepEqual(formatMoments(["2026-11-22T14:54:00Z", "2026-11-22T14:54:15Z"], "Asia/Tokyo"), ["2026-11-22 23:54:00", "2026-11-22 23:54:15"]);
  assert.deepEqual(formatMoments(["2026-11-22T14:54:00.204Z", "2026-11-23T00:00:00Z"], "UTC"), ["2026-11-22 14:54", "2026-11-23 00:00"]);
});

test("the last answers are kept, and the oldest make room", () => {
  const answers = new Answers(2);
  for (const [read, at] of [["a", 1], ["b", 2], ["a", 3], ["c", 4]] as const) answers.keep(read, `${read}${at}`, at);
  assert.deepEqual(["a", "b", "c"].map((read) => answers.get(read)?.body), ["a3", undefined, "c4"]);
  answers.clear();
  assert.equal(answers.get("a"), undefined);
});

test("a need goes with runs that have not ended, so it takes the place of statuses", () => {
  const { filter } = parseFilter("workflow:order status:failed");
  const stuck = withNeed(filter, "stuck");
  assert.equal(formatFilter(stuck), "workflow:order is:stuck");
  assert.equal(queryOf(stuck, 0).need, "stuck");
  assert.equal(commandOf(stuck), "stepwell runs list --workflow order --need stuck");
  assert.equal(formatFilter(withNeed(stuck, "waiting")), "workflow:order is:waiting");
  assert.equal(formatFilter(withNeed(stuck, "stuck")), "workflow:order");
  assert.ok(parseFilter("is:sad").problem.includes("is:stuck"));
});
