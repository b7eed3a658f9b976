// Data of the server that a part of a page shows: read when the part appears, and again while it is visible.
import { signal, useSignal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { isTemporary, Problem } from "./lib/problem";
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

const slowest = 30_000;

// useResource reads data whenever one of the inputs changes, and every so many milliseconds while the page is visible;
// 0 for never. Data of other inputs is not shown, data of a failed request is. Another version of the same data is read
// behind what is shown: a reading that has begun ends first, so that quick changes do not keep each other from the screen.
export function useResource<T>(read: (signal: AbortSignal) => Promise<T>, inputs: unknown[], every = 0, version: unknown = 0): Resource<T> {
  const data = useSignal<T | null>(null);
  const problem = useSignal<Problem | null>(null);
  const loading = useSignal(true);
  const wake = useSignal<() => void>(() => {});
  const interval = useRef(every);
  interval.current = every;
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
    const run = async () => {
      clearTimeout(timer);
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
      } else if (pause > 0 && !document.hidden && !lost.value) timer = window.setTimeout(run, pause);
    };
    const shown = () => {
      if (document.hidden) clearTimeout(timer);
      else if (interval.current > 0 || problem.value) void run();
    };
    // Goes on when somebody has signed in again.
    const unsubscribe = lost.subscribe((isLost) => {
      if (!isLost && problem.peek()?.status === 401) void run();
    });
    wake.value = () => void run();
    document.addEventListener("visibilitychange", shown);
    void run();
    return () => {
      control.abort();
      clearTimeout(timer);
      unsubscribe();
      document.removeEventListener("visibilitychange", shown);
    };
  }, inputs);
  const before = useRef({ polls: every > 0, version });
  useEffect(() => {
    const now = { polls: every > 0, version };
    const due = now.version !== before.current.version || (now.polls && !before.current.polls);
    before.current = now;
    if (due) wake.peek()();
  }, [every > 0, version]);
  return { data, problem, loading, refresh: () => wake.peek()() };
}
