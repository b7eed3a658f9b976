// The live connection: one for each visible tab. It brings pages what has changed, so they do not poll while it stands.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { stream } from "./api";
import type { Api, LiveChanged, LiveHello, LiveLog, LiveRuns, LiveTopic, Run } from "./api.gen";
import { clock } from "./clock";
import { asksForKey, Problem } from "./lib/problem";
import { Frames, type Sent } from "./lib/sse";
import { project } from "./location";
import { lost, suspect } from "./session";

export type Message =
  | { kind: "runs"; data: LiveRuns } | { kind: "run"; data: Run } | { kind: "log"; data: LiveLog };

export type Query = NonNullable<Api["GET /v1/live"]["query"]>;

// connection is "off" while no page wants one, or while the tab is hidden.
export const connection = signal<"off" | "connecting" | "live" | "reconnecting" | "polling">("off");

// paused freezes the page. What comes meanwhile is only counted.
export const paused = signal(false);
export const withheld = signal<ReadonlySet<string>>(new Set());
// mostWithheld is how many of them are counted. There may be more.
export const mostWithheld = 1000;

// covered is true while pages need not poll: changes reach them, or they want none.
export const covered = computed(() => connection.value === "live" || paused.value);

interface Viewer {
  project: string;
  key: string;
  query: () => Query;
  take: (m: Message) => void;
  reread: () => void;
}

const viewers = new Set<Viewer>();
const helloWithin = 5_000;
const silentFor = 40_000;
const hiddenFor = 30_000;
const triesAgainAfter = 60_000;
const slowest = 30_000;

// lastMessageAt is when the server has last sent anything on a live connection.
export let lastMessageAt = 0;

let wanted = ""; // what the connection is for; empty for none
let place = ""; // the ID of the last event
let placeOf = ""; // the project of the place
let settled = false; // a connection brings all later changes, or there is none
let current: AbortController | null = null;
let timer = 0;
let failures = 0;
let hiddenTimer = 0;
let asleep = document.hidden; // the tab is hidden, and has been for a while

// useLive brings a page the changes of what the query selects. A query is asked for when the connection begins; another
// key makes another connection, and no key adds nothing to what other parts of the page want. Reread is called when the
// page must read anew what it shows.
export function useLive(key: string, query: () => Query, take: (m: Message) => void, reread: () => void = () => {}): void {
  const latest = useRef({ query, take, reread });
  latest.current = { query, take, reread };
  useEffect(() => {
    const viewer: Viewer = {
      project: project.value, key,
      query: () => latest.current.query(), take: (m) => latest.current.take(m), reread: () => latest.current.reread(),
    };
    viewers.add(viewer);
    queueMicrotask(update); // a page that comes in place of another one is one change
    return () => {
      viewers.delete(viewer);
      queueMicrotask(update);
    };
  }, [project.value, key]);
}

type Listener = (topics: readonly LiveTopic[]) => void;
const listeners = new Set<Listener>();
const allTopics: readonly LiveTopic[] = ["attention", "queue", "runs", "servers", "settings", "stats"];

// onChange calls a function with the topics of what has changed, until the function that it returns is called.
export function onChange(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function publish(topics: readonly LiveTopic[]): void {
  for (const listener of listeners) listener(topics);
}

const waiting = new Set<() => void>();
const settlesWithin = 1000;

// whenFollowing calls a function when the connection brings all later changes, or when there is none: at once, except while the
// first connection begins. What is read then misses no change, so nothing is read twice at first.
export function whenFollowing(act: () => void): void {
  if (settled) act();
  else waiting.add(act);
}

function settle(): void {
  settled = true;
  for (const act of waiting) act();
  waiting.clear();
}

// togglePause freezes the page, or lets it go on.
export function togglePause(): void {
  paused.value = !paused.value;
  withheld.value = new Set();
  if (!paused.value) rereadAll();
}

// update begins or ends the connection if something else is wanted than before.
function update(): void {
  const keys = [...viewers].filter((v) => v.key !== "").map((v) => `${v.project} ${v.key}`);
  const want = asleep || lost.peek() ? "" : keys.join("\n");
  if (viewers.size === 0) {
    paused.value = false;
  } else if (want === "") {
    settle();
  }
  if (want === wanted) return;
  wanted = want;
  if (want !== "" && project.peek() !== placeOf) place = "";
  failures = 0;
  close();
  connection.value = want === "" ? "off" : "connecting";
  if (want === "") return;
  void connect();
  if (!settled) setTimeout(settle, settlesWithin);
}

function close(): void {
  clearTimeout(timer);
  current?.abort();
  current = null;
}

async function connect(): Promise<void> {
  const control = (current = new AbortController());
  const queries = [...viewers].filter((v) => v.key !== "").map((v) => v.query());
  let watchdog = window.setTimeout(() => control.abort(), helloWithin);
  let next: "reconnecting" | "polling" = "reconnecting";
  let pause = 0;
  placeOf = project.peek();
  try {
    const reader = (await stream(project.peek(), "GET /v1/live", { query: Object.assign({}, ...queries), signal: control.signal }, place)).getReader();
    const [frames, decoder] = [new Frames(), new TextDecoder()];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      lastMessageAt = Date.now();
      for (const sent of frames.push(decoder.decode(value, { stream: true }))) if (control === current) receive(sent);
      if (connection.peek() !== "live") continue;
      clearTimeout(watchdog);
      watchdog = window.setTimeout(() => control.abort(), silentFor);
    }
    pause = 1000; // the server stops
  } catch (err) {
    if (control !== current) return;
    if (err instanceof Problem && asksForKey(err)) await suspect();
    const refused = err instanceof Problem && err.status >= 400 && err.status < 500 && !asksForKey(err);
    const late = control.signal.aborted && connection.peek() !== "live"; // something holds back what the server sends
    if (refused || late) {
      next = "polling";
      pause = triesAgainAfter;
    }
  } finally {
    clearTimeout(watchdog);
  }
  if (control !== current) return;
  connection.value = next;
  settle();
  pause ||= Math.min(slowest, 1000 * 2 ** failures++);
  timer = window.setTimeout(() => void connect(), pause * (1 + Math.random()));
}

// receive applies an event of the stream.
function receive(sent: Sent): void {
  if (sent.id !== "") place = sent.id;
  if (sent.data === "") return;
  if (sent.kind === "hello") {
    connection.value = "live";
    failures = 0;
    const hello = JSON.parse(sent.data) as LiveHello;
    clock.observe(hello.time);
    if (!hello.resumed) rereadAll();
    settle();
    return;
  }
  if (sent.kind === "bye") return;
  clock.observe(null);
  if (sent.kind === "reset") return rereadSoon();
  if (sent.kind === "changed") {
    if (!paused.peek()) publish((JSON.parse(sent.data) as LiveChanged).topics);
    return;
  }
  const message = { kind: sent.kind, data: JSON.parse(sent.data) } as Message;
  if (paused.peek()) withhold(idsIn(message));
  else for (const v of viewers) v.take(message);
}

function withhold(ids: string[]): void {
  const known = withheld.peek();
  if (known.size < mostWithheld && ids.some((id) => !known.has(id))) withheld.value = new Set([...known, ...ids]);
}

function idsIn(m: Message): string[] {
  if (m.kind === "runs") return [...m.data.runs, ...m.data.gone].map((r) => r.id);
  return m.kind === "run" ? [m.data.id] : [];
}

function rereadAll(): void {
  if (paused.peek()) return;
  for (const v of viewers) v.reread();
  publish(allTopics);
}

let rereadTimer = 0;

// rereadSoon reads anew at most every two seconds, and not in all tabs at once.
function rereadSoon(): void {
  rereadTimer ||= window.setTimeout(() => {
    rereadTimer = 0;
    rereadAll();
  }, 2000 + 1000 * Math.random());
}

effect(() => {
  void lost.value;
  queueMicrotask(update);
});

function sleep(): void {
  asleep = document.hidden;
  update();
}

// Over HTTP/1.1 a browser has six connections for all its tabs. So a hidden one leaves its own to one that is visible.
const tabs = new BroadcastChannel("stepwell-visible");
tabs.onmessage = () => document.hidden && sleep();
if (!document.hidden) tabs.postMessage(0);

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = window.setTimeout(sleep, hiddenFor);
    return;
  }
  tabs.postMessage(0);
  sleep(); // or rather wake up
});
