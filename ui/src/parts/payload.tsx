// The payload of one event: as an error, as a tree, as text, or as bytes.
import { useSignal } from "@preact/signals";
import { callBytes, callText, doorOf } from "../api";
import { failureOf, type Failure } from "../lib/failure";
import { encodedBy, formatBytes, hexLine, member, parseJson, writeJson, type JsonValue } from "../lib/jsontext";
import { useResource } from "../resource";
import { may } from "../session";
import { Copy } from "./copy";
import { JsonTree } from "./json";
import { Lines } from "./lines";
import { Loading, Trouble } from "./notice";
import { Virtual } from "./virtual";

type View = "Error" | "Tree" | "Text" | "Bytes";

export interface PayloadProps {
  project: string;
  run: string;
  seq: number;
  // How many lines of the tree are shown at first.
  lines?: number;
}

// Payload reads the event as text, so that no number is rounded, and its bytes only when they are looked at or copied.
export function Payload(p: PayloadProps) {
  const chosen = useSignal<View | null>(null);
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
  const codec = encodedBy(value);
  const truncated = member(event.data.value, "truncated") !== undefined;
  const failure = /_(failed|retrying)$/.test(textOf(member(event.data.value, "type"))) ? failureOf(value) : null;
  const view = chosen.value ?? (failure ? "Error" : "Tree");
  const views: View[] = [...(failure ? ["Error" as const] : []), "Tree", "Text", "Bytes"];
  const stored = () => callBytes(p.project, "GET /v1/runs/{id}/events/{seq}/payload", { path });
  return (
    <div class="payload">
      <div class="payload-bar">
        <div class="segmented" role="group" aria-label="Form of the payload">
          {views.map((v) => <button type="button" aria-pressed={view === v} onClick={() => (chosen.value = v)}>{v}</button>)}
        </div>
        <span class="quiet">{codec ? `encoded by ${codec}: only the app can read it` : encoding}</span>
        <span class="payload-out"><Copy text={async () => textIn(await stored())} label="Copy" what="the payload as it is stored" />
          <a class="button" href={doorOf(p.project, "GET /v1/runs/{id}/events/{seq}/payload", { path })} download={`${p.run}-${p.seq}`}>Download</a></span>
      </div>
      {view === "Error" && failure && <Failed of={failure} />}
      {view === "Tree" && (value ? <JsonTree value={value} lines={p.lines} /> : <p class="quiet">{absent(encoding, truncated)}</p>)}
      {view === "Text" && <Text {...p} />}
      {view === "Bytes" && <Bytes {...p} />}
    </div>
  );
}

function textOf(v: JsonValue | undefined): string {
  return v?.kind === "string" ? (JSON.parse(v.text) as string) : "";
}

// textIn returns stored bytes as text, every one of them.
function textIn(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Error("It is no text: download it.");
  }
}

function absent(encoding: string, truncated: boolean): string {
  if (truncated) return "It is larger than 16 MiB: download it.";
  if (encoding === "encrypted") return "Encrypted: only the app can read this.";
  return "The server cannot decode it. Text and Bytes show it as it is stored.";
}

function Failed({ of }: { of: Failure }) {
  return (
    <div class="failure">
      {of.code && <strong class="mono">{of.code}</strong>}
      <Lines text={of.message} label="Message" />
      <Lines text={of.stack} label="Stack" />
      {of.rest && <><h3>Details</h3><JsonTree value={of.rest} lines={12} /></>}
    </div>
  );
}

function useStored({ project, run, seq }: PayloadProps) {
  return useResource((signal) =>
    callBytes(project, "GET /v1/runs/{id}/events/{seq}/payload", { path: { id: run, seq }, signal }), [project, run, seq]);
}

function Bytes(p: PayloadProps) {
  const bytes = useStored(p);
  const data = bytes.data.value;
  if (bytes.problem.value) return <Trouble problem={bytes.problem.value} retry={bytes.refresh} />;
  if (!data) return <Loading what="the bytes" />;
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

const shownText = 200_000;

// Text shows what is stored, or the same with its parts on lines of their own.
function Text(p: PayloadProps) {
  const bytes = useStored(p);
  const indented = useSignal<string | null>(null);
  const data = bytes.data.value;
  if (bytes.problem.value) return <Trouble problem={bytes.problem.value} retry={bytes.refresh} />;
  if (!data) return <Loading what="the text" />;
  const stored = new TextDecoder().decode(data);
  const text = indented.value ?? stored;
  const turn = () => (indented.value = indented.value === null ? indent(stored) : null);
  return (
    <>
      <pre class="raw text" tabIndex={0} aria-label="Payload as text">{text.slice(0, shownText)}</pre>
      <p class="quiet small"><button type="button" aria-pressed={indented.value !== null} onClick={turn}>Indent</button> {formatBytes(data.length)} are stored
        {text.length > shownText && `; the first ${formatBytes(shownText)} are shown: download the rest`}</p>
    </>
  );
}

// indent returns JSON with white space. What is no JSON stays as it is.
function indent(text: string): string {
  try {
    return writeJson(parseJson(text));
  } catch {
    return text;
  }
}
