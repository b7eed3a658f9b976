// The payload of one event: as a tree, as text, or as bytes.
import { useSignal } from "@preact/signals";
import { callBytes, callText, doorOf } from "../api";
import { formatBytes, hexLine, member, parseJson, type JsonValue } from "../lib/jsontext";
import { useResource } from "../resource";
import { may } from "../session";
import { Copy } from "./copy";
import { JsonTree } from "./json";
import { Loading, Trouble } from "./notice";
import { Virtual } from "./virtual";

const views = ["Tree", "Text", "Bytes"] as const;
type View = (typeof views)[number];

export interface PayloadProps {
  project: string;
  run: string;
  seq: number;
}

// Payload reads the event as text, so that no number is rounded, and its bytes only when they are looked at.
export function Payload(p: PayloadProps) {
  const view = useSignal<View>("Tree");
  const path = { id: p.run, seq: p.seq };
  const event = useResource(async (signal) => {
    const text = await callText(p.project, "GET /v1/runs/{id}/events/{seq}", { path, signal });
    return parseJson(text);
  }, [p.project, p.run, p.seq]);
  if (!may("read")) return <p class="quiet">Not shown to keys of the role metadata.</p>;
  if (event.problem.value) return <Trouble problem={event.problem.value} retry={event.refresh} />;
  if (!event.data.value) return <Loading what="the payload" />;
  const encoding = textOf(member(event.data.value, "encoding"));
  const value = member(event.data.value, "payload");
  if (encoding === "none") return <p class="quiet">None.</p>;
  const truncated = member(event.data.value, "truncated") !== undefined;
  return (
    <div class="payload">
      <div class="payload-bar">
        <div class="segmented" role="group" aria-label="Form of the payload">
          {views.map((v) => <button type="button" aria-pressed={view.value === v} onClick={() => (view.value = v)}>{v}</button>)}
        </div>
        <span class="quiet">{encoding}</span>
        <a class="button" href={doorOf(p.project, "GET /v1/runs/{id}/events/{seq}/payload", { path })}
          download={`${p.run}-${p.seq}`}>Download</a>
      </div>
      {view.value === "Tree"
        ? value ? <JsonTree value={value} /> : <p class="quiet">{absent(encoding, truncated)}</p>
        : <Raw {...p} hex={view.value === "Bytes"} />}
    </div>
  );
}

function textOf(v: JsonValue | undefined): string {
  return v?.kind === "string" ? (JSON.parse(v.text) as string) : "";
}

function absent(encoding: string, truncated: boolean): string {
  if (truncated) return "It is larger than 16 MiB: download it.";
  if (encoding === "encrypted") return "Encrypted: only the app can read this.";
  return "The server cannot decode it. Text and Bytes show it as it is stored.";
}

function Raw({ project, run, seq, hex }: PayloadProps & { hex: boolean }) {
  const bytes = useResource((signal) =>
    callBytes(project, "GET /v1/runs/{id}/events/{seq}/payload", { path: { id: run, seq }, signal }), [project, run, seq]);
  const data = bytes.data.value;
  if (bytes.problem.value) return <Trouble problem={bytes.problem.value} retry={bytes.refresh} />;
  if (!data) return <Loading what="the bytes" />;
  if (hex) {
    const lines = Math.ceil(data.length / 16);
    return (
      <>
        <div class="raw" style={{ height: `${Math.min(lines * 18 + 8, 420)}px` }}>
          <Virtual count={lines} rowHeight={18} label="Bytes" row={(i) => <pre class="raw-line" key={i}>{hexLine(data, i)}</pre>} />
        </div>
        <p class="quiet small">{formatBytes(data.length)}</p>
      </>
    );
  }
  const text = new TextDecoder().decode(data);
  const shown = 200_000;
  return (
    <>
      <pre class="raw text" tabIndex={0} aria-label="Payload as text">{text.slice(0, shown)}</pre>
      <p class="quiet small">{formatBytes(data.length)}{text.length > shown && `; the first ${formatBytes(shown)} are shown: download the rest`}{" "}
        <Copy text={text} label="Copy" what="the text" /></p>
    </>
  );
}
