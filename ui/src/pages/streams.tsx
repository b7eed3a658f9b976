// The streams of a run, and the end of one of them, followed while it is open.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Chunk, Run, Stream } from "../api.gen";
import { addressOf, call, server } from "../api";
import { Tail } from "../lib/chunks";
import { formatBytes, hexLine } from "../lib/jsontext";
import { titleOfStream } from "../lib/names";
import { curl, quote } from "../lib/shell";
import { hasEnded } from "../lib/status";
import { go, href, project, search } from "../location";
import { Also, Copy } from "../parts/copy";
import { Status } from "../parts/icon";
import { Empty, Loading, Trouble } from "../parts/notice";
import { Age } from "../parts/time";
import { Virtual } from "../parts/virtual";
import { useResource } from "../resource";
import { may, needs } from "../session";
import { useTail } from "../tail";

// While nothing can be followed, and how soon what has come is drawn.
const readEvery = 5000;
const drawnWithin = 100;
const firstChunks = 2000; // that are read when a stream is opened: its end
const pageSize = 500;
const keptBytes = 1_000_000;

export function Streams({ run }: { run: Run }) {
  const list = useResource((signal) => call(project.value, "GET /v1/runs/{id}/streams", { path: { id: run.id }, signal }),
    [run.id], { on: hasEnded(run) ? [] : ["runs", "queue"], version: run.status });
  const streams = list.data.value?.data;
  if (list.problem.value && !streams) return <Trouble problem={list.problem.value} retry={list.refresh} />;
  if (!streams) return <Loading what="the streams" />;
  if (streams.length === 0) return <Empty title="This run has no streams"><p>A stream appears here when the run’s app writes one.</p></Empty>;
  const name = search.value.get("stream") ?? streams[0]!.name;
  const chosen = streams.find((s) => s.name === name);
  return (
    <>
      <table class="list" aria-label="Streams of the run">
        <thead><tr><th>Status</th><th>Stream</th><th class="num">Chunks</th><th class="num">Created</th></tr></thead>
        <tbody>{streams.map((s) => (
          <tr key={s.name} aria-current={s === chosen ? "true" : undefined}>
            <td><Status {...(s.closedAt ? { look: "completed", word: "closed" } as const : { look: "running", word: "open" } as const)} /></td>
            <td><a class="strong mono" href={href(["runs", run.id, "streams"], { stream: s.name })}
              onClick={(e) => { e.preventDefault(); go(href(["runs", run.id, "streams"], { stream: s.name }), "replace"); }} title={s.name}>{titleOfStream(s.name)}</a></td>
            <td class="num">{s.chunks.toLocaleString("en")}</td><td class="num"><Age at={s.createdAt} /></td>
          </tr>
        ))}</tbody>
      </table>
      {chosen ? may("read") ? <Contents key={name} run={run} stream={chosen} /> : <p class="quiet">What is in it is not shown. {needs("read")}</p>
        : <Empty title="This run has no such stream" />}
    </>
  );
}

interface Reading {
  tail: Tail;
  next: number; // the index of the first chunk that was not read
  shown: number; // next, when it was shown; -1 before
  from: number;
  closed: boolean;
}

// Contents shows the end of a stream: what is in it, or its bytes as they were written.
function Contents({ run, stream }: { run: Run; stream: Stream }) {
  const form = useSignal<Form>("Text");
  return <Part key={form.value} run={run} stream={stream} form={form.value} change={(f) => (form.value = f)} />;
}

type Form = "Text" | "Bytes";

function Part({ run, stream, form, change }: { run: Run; stream: Stream; form: Form; change: (f: Form) => void }) {
  const first = Math.max(0, stream.chunks - firstChunks);
  const reading = useRef<Reading>({ tail: new Tail(keptBytes), next: first, shown: -1, from: first, closed: false });
  const follow = useSignal(true);
  const closed = useSignal(false);
  const shown = useSignal<{ bytes: Uint8Array; left: number; encrypted: number } | null>(null);
  const following = follow.value && !closed.value;
  const path = { id: run.id, name: stream.name };
  const decoded = form === "Text";
  // What was followed may come by a page as well.
  const take = (chunks: Chunk[]) => {
    const r = reading.current;
    const fresh = chunks.filter((c) => c.index >= r.next);
    r.tail.add(fresh);
    r.next = (fresh.at(-1)?.index ?? r.next - 1) + 1;
  };
  const draw = () => {
    const r = reading.current;
    if (r.next === r.shown) return;
    r.shown = r.next;
    shown.value = { bytes: r.tail.bytes(), left: r.tail.left, encrypted: r.tail.encrypted };
  };
  const drawing = useRef(0);
  useEffect(() => () => clearTimeout(drawing.current), []);
  const live = useTail(following && shown.value !== null, {
    run: run.id, name: stream.name, decoded, from: () => reading.current.next,
    take: (c) => {
      take([c]);
      drawing.current ||= window.setTimeout(() => {
        drawing.current = 0;
        draw();
      }, drawnWithin);
    },
    end: () => (closed.value = reading.current.closed = true),
  }).value;
  const read = useResource(async (signal) => {
    const r = reading.current;
    for (let more = !r.closed; more;) {
      const page = await call(project.value, "GET /v1/runs/{id}/streams/{name}", { path, query: { cursor: String(r.next), limit: pageSize, decoded }, signal });
      take(page.data);
      more = page.cursor !== undefined;
      closed.value = r.closed = page.closed && !more;
    }
    draw();
  }, [run.id, stream.name, following], { poll: following && !live ? readEvery : 0 });
  const { from } = reading.current;
  const part = shown.value;
  const text = part && form === "Text" ? new TextDecoder().decode(part.bytes) : "";
  return (
    <section class="stream" aria-label={`Stream ${titleOfStream(stream.name)}`}>
      <div class="bar">
        <div class="segmented" role="group" aria-label="Form of the stream">
          {(["Text", "Bytes"] as const).map((v) => <button type="button" aria-pressed={form === v} onClick={() => change(v)}>{v}</button>)}
        </div>
        {closed.value ? <span class="quiet">closed</span> : <label class="check"><input type="checkbox" checked={follow.value} onChange={(e) => (follow.value = e.currentTarget.checked)} />Follow</label>}
        {part && <span class="quiet">{formatBytes(part.bytes.length)}{(from > 0 || part.left > 0) && ", the end of it: the command prints all"}</span>}
        {text && <Copy text={text} label="Copy" what="the text" />}
      </div>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {part && part.encrypted > 0 && <p class="quiet">{part.encrypted === 1 ? "1 chunk is encrypted: only the app can read it." : `${part.encrypted.toLocaleString("en")} chunks are encrypted: only the app can read them.`}</p>}
      {part ? form === "Text" ? <End text={text} /> : <Hex bytes={part.bytes} /> : !read.problem.value && <Loading what="the stream" />}
      <Also what={`The stream ${titleOfStream(stream.name)}`} cli={`stepwell streams tail ${run.id} ${quote(stream.name)} --follow`} curl={curl(server, "GET", addressOf("GET /v1/runs/{id}/streams/{name}/tail", { path, query: {} }))} />
    </section>
  );
}

// End shows a text and stays at its end, unless somebody has scrolled up.
function End({ text }: { text: string }) {
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return <pre ref={box} class="raw text" tabIndex={0} aria-label="The stream as text"
    onScroll={(e) => (atEnd.current = e.currentTarget.scrollTop + e.currentTarget.clientHeight > e.currentTarget.scrollHeight - 20)}>{text}</pre>;
}

function Hex({ bytes }: { bytes: Uint8Array }) {
  const lines = Math.ceil(bytes.length / 16);
  return (
    <div class="raw" style={{ height: `${Math.min(lines * 18 + 8, 420)}px` }}>
      <Virtual count={lines} rowHeight={18} label="The stream as bytes" row={(i) => <pre class="raw-line" key={i}>{hexLine(bytes, i)}</pre>} />
    </div>
  );
}
