// What is written to a stream of a run, as it is written.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { stream } from "./api";
import type { Chunk } from "./api.gen";
import { Frames } from "./lib/sse";
import { project } from "./location";

const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (visible.value = !document.hidden));

const slowest = 30_000;

export interface Tailed {
  run: string;
  name: string;
  decoded: boolean;
  // The index of the first chunk that is wanted now.
  from: () => number;
  take: (chunk: Chunk) => void;
  // The stream is closed: nothing comes any more.
  end: () => void;
}

// useTail follows a stream while on, in a visible tab: over HTTP/1.1 a browser has few connections for all of them. What it
// returns is true while it brings whatever is written.
export function useTail(on: boolean, tailed: Tailed): Signal<boolean> {
  const follows = useRef(signal(false)).current;
  const latest = useRef(tailed);
  latest.current = tailed;
  const wanted = on && visible.value;
  useEffect(() => {
    if (!wanted) return;
    const control = new AbortController();
    let [timer, failures] = [0, 0];
    const connect = async () => {
      try {
        const { run, name, decoded, from } = latest.current;
        const answer = await stream(project.peek(), "GET /v1/runs/{id}/streams/{name}/tail", { path: { id: run, name }, query: { from: from(), decoded }, signal: control.signal }, "");
        const [reader, frames, decoder] = [answer.getReader(), new Frames(), new TextDecoder()];
        follows.value = true;
        for (;;) {
          const { done, value } = await reader.read();
          if (done || control.signal.aborted) break;
          failures = 0;
          for (const sent of frames.push(decoder.decode(value, { stream: true }))) {
            if (sent.kind === "end") return latest.current.end();
            if (sent.data !== "") latest.current.take(JSON.parse(sent.data) as Chunk);
          }
        }
      } catch {
        // it is read by pages meanwhile, which says what is wrong
      } finally {
        follows.value = false;
      }
      if (!control.signal.aborted) timer = window.setTimeout(() => void connect(), Math.min(slowest, 1000 * 2 ** failures++) * (1 + Math.random()));
    };
    void connect();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [wanted, tailed.run, tailed.name, tailed.decoded]);
  return follows;
}
