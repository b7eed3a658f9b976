// The one place that sends requests: operations of the API through the dashboard's door, and the session.
import type { Api } from "./api.gen";
import { Answers } from "./lib/answers";
import { fill } from "./lib/path";
import { Problem, problemOf } from "./lib/problem";
import { groupsOf, Lines, queryOfReads } from "./lib/together";
import { clock, lag } from "./clock";

// base is the path below which browsers reach the server, without a slash at its end.
export const base = document.querySelector<HTMLMetaElement>('meta[name="stepwell-base"]')?.content ?? "";

// server is the address of the API, for programs.
export const server = location.origin + base;

// late has how many milliseconds the answers to a reading may lack, by its signal.
const late = new WeakMap<AbortSignal, number>();

// lateBy returns how many milliseconds the answers may lack that came for a signal since it was last called.
export function lateBy(signal: AbortSignal): number {
  const ms = late.get(signal) ?? 0;
  late.delete(signal);
  return ms;
}

// observeLag takes what an answer says of how late it is.
function observeLag(header: string | null, signal?: AbortSignal): void {
  lag.observe(header, performance.now());
  if (header && signal) late.set(signal, Math.max(late.get(signal) ?? 0, Number.parseFloat(header) * 1000 || 0));
}

export type Operation = keyof Api & string;

export interface Request<K extends Operation> {
  path?: Api[K]["path"];
  query?: Api[K]["query"];
  body?: Api[K]["body"];
  // The body as text, if it has numbers that must stay as they were written.
  text?: string;
  signal?: AbortSignal;
}

// addressOf returns the path and query of an operation, as the API documents it: /v1/….
export function addressOf<K extends Operation>(operation: K, r: Request<K>): string {
  return fill(operation.slice(operation.indexOf(" ") + 1), r.path ?? {}, r.query ?? {});
}

// answers are the last ones to what pages have read: with a signal, by GET. What runs have written is large, and left out.
const answers = new Answers(50);
const large = /^\/v1\/runs\/[^/]+\/(?:events|streams|timeline)/;

// recalled has the signals of readings that are answered as they were last, and when the oldest of those answers was read.
const recalled = new WeakMap<AbortSignal, { at: number }>();

// isRecalled reports whether a reading is answered as it was last.
export function isRecalled(signal: AbortSignal): boolean {
  return recalled.has(signal);
}

// recall does a reading with the last answers to its requests, and returns when they were read; null if one is not known.
export async function recall<T>(read: (signal: AbortSignal) => Promise<T>): Promise<{ answer: T; at: number } | null> {
  const { signal } = new AbortController();
  const oldest = { at: Infinity };
  recalled.set(signal, oldest);
  try {
    const answer = await read(signal);
    return oldest.at === Infinity ? null : { answer, at: oldest.at };
  } catch {
    return null;
  }
}

// forget forgets the last answers: who signs in next may not see them.
export function forget(): void {
  answers.clear();
}

// remembered reads, and keeps the answer. A reading that is recalled has the last one.
async function remembered<T>(form: "json" | "text", project: string, path: string, signal: AbortSignal | undefined, read: () => Promise<T>): Promise<T> {
  const key = `${form} ${project} ${path}`;
  const oldest = signal && recalled.get(signal);
  if (!oldest) {
    const body = await read();
    if (signal && !large.test(path)) answers.keep(key, body, clock.now());
    return body;
  }
  const last = answers.get(key);
  if (!last) throw new Problem(0, "unreachable", "It was not read before.");
  oldest.at = Math.min(oldest.at, last.at);
  return last.body as T;
}

// call calls an operation in a project. It fails with a Problem, or an AbortError. Reads of the same moment are one request.
export async function call<K extends Operation>(project: string, operation: K, r: Request<K> = {}): Promise<Api[K]["answer"]> {
  const path = addressOf(operation, r);
  if (methodOf(operation) === "GET") return remembered("json", project, path, r.signal, () => join<Api[K]["answer"]>(project, path, r.signal));
  return send(doorOf(project, operation, r), methodOf(operation), r, async (a) => (a.status === 204 ? null : await a.json()) as Api[K]["answer"]);
}

// callText is call with the text of the answer: numbers stay as they were written.
export async function callText<K extends Operation>(project: string, operation: K, r: Request<K>): Promise<string> {
  const read = () => send(doorOf(project, operation, r), methodOf(operation), r, (a) => a.text());
  return methodOf(operation) === "GET" ? remembered("text", project, addressOf(operation, r), r.signal, read) : read();
}

// callBytes is call with the bytes of the answer.
export async function callBytes<K extends Operation>(project: string, operation: K, r: Request<K>): Promise<Uint8Array> {
  return send(doorOf(project, operation, r), methodOf(operation), r, async (a) => new Uint8Array(await a.arrayBuffer()));
}

interface Read {
  path: string;
  signal?: AbortSignal;
  done: (body: never) => void;
  fail: (err: unknown) => void;
}

const joined = new Map<string, Read[]>(); // by project, until they are sent

function join<T>(project: string, path: string, signal?: AbortSignal): Promise<T> {
  return new Promise((done, fail) => {
    if (joined.size === 0) queueMicrotask(sendJoined);
    joined.set(project, [...joined.get(project) ?? [], { path, signal, done, fail }]);
  });
}

function sendJoined(): void {
  for (const [project, reads] of joined) {
    for (const group of groupsOf(reads)) void (group.length > 1 ? sendTogether(project, group) : sendAlone(project, group[0]!));
  }
  joined.clear();
}

async function sendAlone(project: string, r: Read): Promise<void> {
  await send(`${base}/ui/${encodeURIComponent(project)}${r.path}`, "GET", r, async (a) => (a.status === 204 ? null : await a.json()) as never).then(r.done, r.fail);
}

// sendTogether sends reads as one request. Each is answered when its line comes.
async function sendTogether(project: string, reads: Read[]): Promise<void> {
  const open = new Set(reads);
  const control = new AbortController();
  const leave = (r: Read) => {
    r.fail(r.signal!.reason);
    open.delete(r);
    if (open.size === 0) control.abort();
  };
  for (const r of reads) {
    if (r.signal?.aborted) leave(r);
    else r.signal?.addEventListener("abort", () => leave(r), { once: true });
  }
  const take = (text: string, lines: Lines) => {
    for (const line of lines.push(text)) {
      const r = reads[line.n]!;
      observeLag(line.replicaLag ?? null, r.signal);
      open.delete(r);
      if (line.status < 300) r.done(line.body as never);
      else r.fail(problemOf(line.status, JSON.stringify(line.body), line.retryAfter ?? null));
    }
  };
  try {
    const body = await send(`${base}/ui/-/reads/${encodeURIComponent(project)}?${queryOfReads(reads.map((r) => r.path))}`, "GET", { signal: control.signal }, async (a) => a.body!);
    const [reader, lines, decoder] = [body.getReader(), new Lines(), new TextDecoder()];
    while (open.size > 0) {
      const timer = setTimeout(() => control.abort(), answersWithin);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) break;
      take(decoder.decode(value, { stream: true }), lines);
    }
    throw new Problem(0, "unreachable", "No answer came.");
  } catch (err) {
    for (const r of open) r.fail(err instanceof Problem ? err : new Problem(0, "unreachable", "No answer came."));
  }
}

// doorOf returns the address at which this page calls the operation.
export function doorOf<K extends Operation>(project: string, operation: K, r: Request<K>): string {
  return `${base}/ui/${encodeURIComponent(project)}${addressOf(operation, r)}`;
}

function methodOf(operation: string): string {
  return operation.slice(0, operation.indexOf(" "));
}

// Session is what this browser may use.
export interface Session {
  open: boolean;
  version: string;
  // The host of the identity provider by which people sign in.
  provider?: string;
  // The other cells in which this browser has sessions.
  cells?: string[];
  // The project that a sign-in has opened.
  opened?: string;
  projects: Array<{ project: string; role: string; key?: string; expiresAt?: string }>;
}

const sessionPath = `${base}/ui/-/session`;

// inCell returns what makes the proxy before several cells send a request of the session to one of them.
function inCell(cell: string): Record<string, string> {
  return cell ? { "Stepwell-Cell": cell } : {};
}

async function readSessionIn(cell: string): Promise<Session> {
  return send(sessionPath, "GET", { headers: inCell(cell) }, (a) => a.json() as Promise<Session>);
}

// readSession reads what this browser may use, in all cells that answer: a project that several have is that of the first.
export async function readSession(): Promise<Session> {
  return withCells(await readSessionIn(""));
}

async function withCells(first: Session): Promise<Session> {
  const others = await Promise.allSettled((first.cells ?? []).map(readSessionIn));
  const projects = [...first.projects];
  for (const o of others) {
    if (o.status === "fulfilled") projects.push(...o.value.projects.filter((p) => !projects.some((q) => q.project === p.project)));
  }
  return { ...first, projects };
}

// Credential opens a project: a key, or a code that a key has made.
export type Credential = { key: string } | { code: string };

export async function signIn(by: Credential): Promise<Session> {
  return withCells(await send(sessionPath, "POST", { body: by, headers: inCell(cellOf(by)) }, (a) => a.json() as Promise<Session>));
}

// cellOf returns the cell that has made a credential; empty if it does not say.
function cellOf(by: Credential): string {
  const made = "key" in by ? /^sw_([a-z][a-z0-9]*)_/.exec(by.key) : /^([a-z][a-z0-9]*)\./.exec(by.code);
  return made?.[1] ?? "";
}

// signOut ends the session in each cell.
export async function signOut(): Promise<void> {
  const { cells } = await readSessionIn("");
  await Promise.all(["", ...cells ?? []].map((cell) => send(sessionPath, "DELETE", { headers: inCell(cell) }, async () => {})));
}

// stream is call with the answer as it comes, after the last event that was received; empty for none.
export async function stream<K extends Operation>(project: string, operation: K, r: Request<K>, last: string): Promise<ReadableStream<Uint8Array>> {
  const headers: Record<string, string> = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
  return send(doorOf(project, operation, r), methodOf(operation), { ...r, headers }, async (a) => a.body!);
}

interface Sending {
  body?: unknown;
  text?: string;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

// answersWithin is how long the page waits for the beginning of an answer to what only reads, in milliseconds: something in
// between may keep a request for ever.
const answersWithin = 30_000;

// send sends a request and takes what is wanted of its answer. It fails with a Problem, or as the signal says.
async function send<T>(address: string, method: string, r: Sending, take: (answer: Response) => Promise<T>): Promise<T> {
  const headers: Record<string, string> = { "Stepwell-UI": "1", ...r.headers };
  const body = r.text ?? (r.body ? JSON.stringify(r.body) : null);
  if (body !== null) headers["Content-Type"] = "application/json";
  const late = new AbortController();
  const timer = method === "GET" ? setTimeout(() => late.abort(), answersWithin) : undefined;
  try {
    const answer = await fetch(address, {
      method, headers, body, signal: r.signal ? AbortSignal.any([r.signal, late.signal]) : late.signal,
      credentials: "same-origin", cache: "no-store", redirect: "error",
    });
    clearTimeout(timer);
    clock.observe(answer.headers.get("Date"));
    observeLag(answer.headers.get("Stepwell-Replica-Lag"), r.signal);
    if (!answer.ok) throw problemOf(answer.status, await answer.text(), answer.headers.get("Retry-After"));
    return await take(answer);
  } catch (err) {
    if (err instanceof Problem || r.signal?.aborted) throw err;
    throw new Problem(0, "unreachable", err instanceof SyntaxError ? "Something between this page and the server has answered in its place."
      : method === "GET" ? "No answer came." : "No answer came. It may have been done nevertheless: look before you repeat it.");
  } finally {
    clearTimeout(timer);
  }
}
