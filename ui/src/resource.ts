// Data of the server that a part of a page shows: read when the part appears, and again while it is visible.
import { signal, useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { LiveTopic } from "./api.gen";
import { isTemporary, Problem } from "./lib/problem";
import { covered, lastMessageAt, onChange, whenFollowing } from "./live";
import { lost, suspect } from "./session";

export type Freshness = "live" | "paused" | "stale";

// freshness tells how current the page is, for the header.
export const freshness = signal<Freshness>("live");
// staleSince is when the last answer came that the page shows, if requests fail.
export const staleSince = signal(0);

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

const slowest = 30_000;
const pollEvery = 15_000;
// How long a page waits after a change: pages do not ask all at once, and servers share answers for a second.
const [soonest, spread] = [1000, 2000];

// useResource reads data whenever one of the inputs changes, and again as keep says. Data of other inputs is not shown,
// data of a failed request is. Another version of the same data is read behind what is shown: a reading that has begun ends
// first, so that quick changes do not keep each other from the screen.
export function useResource<T>(read: (signal: AbortSignal) => Promise<T>, inputs: unknown[], keep: Keep = {}): Resource<T> {
  const data = useSignal<T | null>(null);
  const problem = useSignal<Problem | null>(null);
  const loading = useSignal(true);
  const wake = useSignal<() => void>(() => {});
  const delay = useSignal<() => void>(() => {});
  const every = keep.poll || (covered.value ? 0 : keep.every ?? (keep.on?.length ? pollEvery : 0));
  const interval = useRef(every);
  interval.current = every;
  const kept = useRef(keep);
  kept.current = keep;
  const latest = useRef(read);
  latest.current = read;
  useEffect(() => {
    data.value = null;
    problem.value = null;
    const control = new AbortController();
    let timer = 0;
    let failures = 0;
    let busy = false;
    let again = false; // somebody wants what is read from now on
    let begun = false;
    let stale = 0; // the timer of a reading that is due because something has changed; -1 if the page is hidden
    const run = async () => {
      if (!begun) return;
      clearTimeout(timer);
      clearTimeout(stale);
      stale = 0;
      again ||= busy;
      if (busy || control.signal.aborted) return;
      busy = true;
      loading.value = true;
      let pause = 0;
      try {
        const answer = await latest.current(control.signal);
        if (control.signal.aborted) return;
        data.value = answer;
        problem.value = null;
        failures = 0;
        freshness.value = "live";
        staleSince.value = Date.now();
      } catch (err) {
        if (control.signal.aborted) return;
        const p = err instanceof Problem ? err : new Problem(-1, "page", String(err));
        problem.value = p;
        if (p.status === 401) {
          await suspect();
          pause ||= lost.value ? 0 : 1000;
        }
        if (isTemporary(p)) {
          freshness.value = "stale";
          staleSince.value = Math.max(staleSince.value, lastMessageAt);
          pause = Math.max(p.retryAfter * 1000, Math.min(slowest, 1000 * 2 ** failures++));
        }
      } finally {
        pause ||= interval.current;
        busy = false;
        if (!control.signal.aborted) loading.value = false;
      }
      if (again) {
        again = false;
        void run();
      } else later(pause);
    };
    const later = (pause: number) => {
      clearTimeout(timer);
      if (pause > 0 && !document.hidden && !lost.value) timer = window.setTimeout(run, pause);
    };
    const stop = onChange((topics) => {
      if (!begun || stale || !kept.current.on?.some((t) => topics.includes(t))) return;
      stale = document.hidden ? -1 : window.setTimeout(run, (soonest + spread * Math.random()) * (kept.current.weight ?? 1));
    });
    const shown = () => {
      clearTimeout(timer);
      if (document.hidden) {
        if (stale > 0) clearTimeout(stale);
        stale &&= -1;
      } else if (stale || problem.value) {
        void run();
      } else {
        later(interval.current);
      }
    };
    // Goes on when somebody has signed in again.
    const unsubscribe = lost.subscribe((isLost) => {
      if (!isLost && problem.peek()?.status === 401) void run();
    });
    wake.value = () => void run();
    delay.value = () => problem.peek() || later(interval.current);
    document.addEventListener("visibilitychange", shown);
    const begin = () => {
      begun = true;
      void run();
    };
    if (interval.current > 0 && !keep.poll) whenFollowing(begin);
    else begin();
    return () => {
      control.abort();
      clearTimeout(timer);
      clearTimeout(stale);
      stop();
      unsubscribe();
      document.removeEventListener("visibilitychange", shown);
    };
  }, inputs);
  const before = useRef({ every, version: keep.version });
  useEffect(() => {
    const was = before.current;
    before.current = { every, version: keep.version };
    if (keep.version !== was.version) wake.peek()();
    else if (every !== was.every) delay.peek()();
  }, [every, keep.version]);
  return { data, problem, loading, refresh: () => wake.peek()() };
}
