// Data of the server that a part of a page shows: read when the part appears, and again while it is visible.
import { effect, signal, useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { LiveTopic } from "./api.gen";
import { lateBy, recall } from "./api";
import { clock } from "./clock";
import { asksForKey, isTemporary, type Problem } from "./lib/problem";
import { Reader, type Listener, type Surroundings } from "./lib/reader";
import { connection, covered, lastMessageAt, onChange, whenFollowing } from "./live";
import { lost, suspect } from "./session";

export type Freshness = "live" | "paused" | "stale";

// freshness tells how current the page is, for the header.
export const freshness = signal<Freshness>("live");
// staleSince is when the last answer came that the page shows, if requests fail.
export const staleSince = signal(0);

// The server answers again, also if nothing that is shown is read anew.
effect(() => {
  if (connection.value === "live") freshness.value = "live";
});

export interface Resource<T> {
  data: Signal<T | null>;
  problem: Signal<Problem | null>;
  loading: Signal<boolean>;
  refresh: () => void;
}

// Keep says when data is read again. Nothing is read while the page is hidden.
export interface Keep {
  // When something of these topics has changed.
  on?: readonly LiveTopic[];
  // Every so many milliseconds while no live connection brings changes: by default 15 s for what has topics.
  every?: number;
  // Every so many milliseconds, for changes that no live connection brings.
  poll?: number;
  // When it is another one.
  version?: unknown;
  // How many requests a reading costs: what costs more is read more rarely.
  weight?: number;
}

const pollEvery = 15_000;

const surroundings: Surroundings = {
  hidden: () => document.hidden,
  signedOut: () => lost.value,
  after: (ms, act) => {
    const timer = window.setTimeout(act, ms);
    return () => clearTimeout(timer);
  },
  late: lateBy,
  random: Math.random,
};

// useResource reads data whenever one of the inputs changes, and again as keep says. Data of other inputs is not shown,
// data of a failed request is, and while the server is away what was read last, if there is nothing else. Another version of
// the same data is read behind what is shown.
export function useResource<T>(read: (signal: AbortSignal) => Promise<T>, inputs: unknown[], keep: Keep = {}): Resource<T> {
  const shown = { data: useSignal<T | null>(null), problem: useSignal<Problem | null>(null), loading: useSignal(true) };
  const reader = useRef<Reader<T> | null>(null);
  const latest = useRef({ read, keep });
  latest.current = { read, keep };
  const every = keep.poll || (covered.value ? 0 : keep.every ?? (keep.on?.length ? pollEvery : 0));
  useEffect(() => {
    shown.data.value = null;
    shown.problem.value = null;
    const load = (signal: AbortSignal) => latest.current.read(signal);
    const r: Reader<T> = reader.current = new Reader<T>(load, every, surroundings, listenerOf(shown, load, () => reader.current === r));
    const leave = [
      onChange((topics) => {
        const { on, weight } = latest.current.keep;
        if (on?.some((t) => topics.includes(t))) r.changed(weight);
      }),
      // Goes on when somebody has signed in again.
      lost.subscribe((isLost) => {
        if (!isLost && shown.problem.peek()?.status === 401) r.read();
      }),
      onVisibility(() => r.visibilityChanged()),
    ];
    if (every > 0 && !keep.poll) whenFollowing(() => r.begin());
    else r.begin();
    return () => {
      r.stop();
      for (const end of leave) end();
    };
  }, inputs);
  const before = useRef({ every, version: keep.version });
  useEffect(() => {
    const was = before.current;
    before.current = { every, version: keep.version };
    if (keep.version !== was.version) reader.current?.read();
    else if (every !== was.every) reader.current?.pace(every);
  }, [every, keep.version]);
  return { ...shown, refresh: () => reader.current?.read() };
}

function listenerOf<T>(
  { data, problem, loading }: Omit<Resource<T>, "refresh">, load: (signal: AbortSignal) => Promise<T>, isCurrent: () => boolean,
): Listener<T> {
  let shownAt = 0; // when what is shown was read
  return {
    reading: (on) => (loading.value = on),
    read: (answer) => {
      data.value = answer;
      problem.value = null;
      shownAt = clock.now();
      freshness.value = "live";
      staleSince.value = Date.now();
    },
    failed: async (p) => {
      const last = isTemporary(p) && data.peek() === null ? await recall(load) : null;
      if (!isCurrent()) return;
      if (last) [data.value, shownAt] = [last.answer, last.at];
      p.shownAt = shownAt;
      problem.value = p;
      if (asksForKey(p)) await suspect();
      if (!isTemporary(p)) return;
      freshness.value = "stale";
      staleSince.value = Math.max(staleSince.value, lastMessageAt);
    },
  };
}

// onVisibility calls a function when the page is hidden or shown, until the function that it returns is called.
function onVisibility(act: () => void): () => void {
  document.addEventListener("visibilitychange", act);
  return () => document.removeEventListener("visibilitychange", act);
}
