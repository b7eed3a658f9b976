// Requests to the server, over one pool of keep-alive connections. It uses node:http because frameworks replace fetch.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import { decode, encode } from './cbor.js';
import { clock } from './clock.js';
import { superseded } from './fence.js';

/** The version of the World protocol (docs/protocol.md §11) that this client speaks. */
export const PROTOCOL = 1;

export const MIME_CBOR = 'application/cbor';
export const MIME_FRAMES = 'application/vnd.workflow.v4-frames';
export const MIME_WORLD = 'application/vnd.stepwell.world';

/** Marks a delivery that the app has fetched: its outcome goes to the server in a request of its own. */
export const PULLED = 'stepwell-pulled';
/** Its value, by which this process knows the deliveries that it has fetched itself: nobody signs them. */
export const PULL_TOKEN = (globalThis[Symbol.for('@stepwell/world//pull-token/1')] ??= randomUUID());

// An idle connection is closed here before the server closes it (2 minutes), so that no request meets its end.
const IDLE_MS = 15_000;
// The time until the answer has begun and, from then on, between its parts.
const TIMEOUT_MS = 60_000;
// The pauses between the tries of a request that may be repeated; the last one repeats.
const PAUSES_MS = [100, 200, 400, 800, 1600, 3200];
// How long after its first failure a request is repeated: enough for a server to restart.
const PATIENCE_MS = 8000;
// The longest time that a request waits, all in all, because the server asks for it (429).
const LONGEST_WAIT_MS = 30_000;

const UNAVAILABLE = new Set([502, 503, 504]);
// Errors of connections that were never made, so that no server has the request.
const UNSENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN']);

/** A request that got no whole answer. */
class Interrupted extends Error {
  constructor(message, cause) {
    super(message, { cause });
    this.code = cause?.code;
  }
}

export class Http {
  #base;
  #prefix;
  #headers;
  #errors;
  #agent;
  #request;
  #live = new Set();
  #unref;

  /** @param errors the error classes of the app's SDK; unref: whether requests do not keep the process alive */
  constructor({ base, key, errors, userAgent, unref = false }) {
    this.#unref = unref;
    this.#base = new URL(base);
    this.#prefix = this.#base.pathname.replace(/\/+$/, '');
    const secure = this.#base.protocol === 'https:';
    this.#request = secure ? https.request : http.request;
    this.#agent = new (secure ? https : http).Agent({ keepAlive: true, timeout: IDLE_MS });
    this.#errors = errors;
    this.#headers = { 'user-agent': userAgent, 'stepwell-world': String(PROTOCOL), 'accept-encoding': 'identity' };
    if (key) this.#headers.authorization = `Bearer ${key}`;
  }

  /** Ends the connections and the live reads. */
  close() {
    for (const request of this.#live) request.destroy(new Error('the World was closed'));
    this.#agent.destroy();
  }

  /** Reads an entity. */
  async get(path, query) {
    const answer = await this.request('GET', path + search(query), { repeatable: true, accept: MIME_CBOR });
    return body(answer);
  }

  /** Sends CBOR and returns the decoded answer. */
  async post(path, value, options) {
    const headers = { 'content-type': MIME_CBOR };
    return body(await this.request('POST', path, { body: encode(value), headers, accept: MIME_CBOR, ...options }));
  }

  /**
   * Sends a request and returns the whole answer, of status 2xx.
   *
   * A request is sent again if it found no server, or an overloaded one; a repeatable one also after a lost answer or
   * while the server is unavailable. That ends when it has failed for as long as the patience, in milliseconds. Body may
   * be a function of whether an earlier try may have been carried out. With once, it is never sent again.
   * @throws the SDK's error for the status
   */
  async request(method, path, { body, repeatable = false, waits = false, patience = PATIENCE_MS, once = false, ...options } = {}) {
    let waited = 0;
    let deadline;
    let doubtful = false;
    for (let attempt = 0; ; attempt++) {
      const { answer, err } = await this.#try(method, path, typeof body === 'function' ? body(doubtful) : body, options);
      if (answer?.status < 300) return answer;
      let wait = PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)];
      let again;
      if (answer?.status === 429 && waits) {
        wait = (retryAfter(answer) ?? 1) * 1000;
        waited += wait;
        again = waited <= Math.max(LONGEST_WAIT_MS, patience);
      } else {
        deadline ??= Date.now() + patience;
        again = !once && mayRepeat(answer, err, repeatable) && !options.signal?.aborted && Date.now() + wait < deadline;
      }
      if (!again) throw answer ? this.error(answer, path) : this.#transportError(err, method, path);
      doubtful ||= mayBeDone(answer, err);
      await pause(wait);
    }
  }

  #try(...request) {
    return this.#send(...request).then((answer) => ({ answer }), (err) => ({ err }));
  }

  /** Opens a live read. Returns the answer as a stream, which fails if the answer is cut. */
  async open(path) {
    const answer = await new Promise((resolve, reject) => {
      const request = this.#start('GET', path, { accept: 'application/json' }, resolve, reject);
      this.#live.add(request);
      request.on('close', () => this.#live.delete(request)).end();
    }).catch((err) => {
      throw this.#transportError(err, 'GET', path);
    });
    if (answer.statusCode >= 300) throw this.error(await whole(answer), path);
    return webStream(answer, (err) => this.#transportError(err, 'GET', path));
  }

  #start(method, path, headers, resolve, reject) {
    const request = this.#request(
      {
        hostname: this.#base.hostname.replace(/^\[|\]$/g, ''),
        port: this.#base.port || undefined,
        path: this.#prefix + path,
        method,
        headers: { ...this.#headers, ...headers },
        agent: this.#agent,
      },
      (answer) => {
        clock.note(answer.headers.date);
        resolve(answer);
      },
    );
    if (this.#unref) request.on('socket', (socket) => socket.unref());
    return request.on('error', reject);
  }

  #send(method, path, body, { headers, accept, signal, timeout = TIMEOUT_MS }) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const all = { ...headers, ...(accept && { accept }), ...(body && { 'content-length': size(body) }) };
      const request = this.#start(method, path, all, (answer) => whole(answer).then(resolve, reject), reject);
      request.setTimeout(timeout, () => request.destroy(new Interrupted(`no answer within ${timeout / 1000} s`)));
      if (signal) {
        const abort = () => request.destroy(signal.reason);
        signal.addEventListener('abort', abort, { once: true });
        request.on('close', () => signal.removeEventListener('abort', abort));
      }
      for (const part of parts(body)) request.write(part);
      request.end();
    });
  }

  /** The SDK's error for an answer. */
  error(answer, path) {
    const { message, ...rest } = problem(answer);
    return this.errorFor({ ...rest, status: answer.status, retryAfter: retryAfter(answer), url: this.#url(path),
      message: message ?? `HTTP ${answer.status} from ${path.split('?')[0]}` });
  }

  /** The SDK's error for a status. */
  errorFor({ status, message, code, retryAfter, url, details, seq, seqInBand }) {
    const e = this.#errors;
    switch (status) {
      case 409:
        return new e.EntityConflictError(message);
      case 410:
        return code === 'stream-expired' && e.StreamExpiredError
          ? new e.StreamExpiredError(message, details?.runId, details?.streamId, details?.expiredAt)
          : new e.RunExpiredError(message);
      case 412:
        if (code === 'in-band-superseded') return superseded(e, message, { seq, seqInBand });
        break;
      case 425:
        return new e.TooEarlyError(message, { retryAfter });
      case 429:
        return new e.ThrottleError(message, { retryAfter });
    }
    return new e.WorkflowWorldError(message, { status, code, url, retryAfter });
  }

  /** @throws if the answer is from a server that is older than the World protocol. */
  requireProtocol(answer, path) {
    if (!(Number(answer.headers['stepwell-world']) >= PROTOCOL)) throw this.tooOld(path);
  }

  /** The error for a server that is older than the World protocol. */
  tooOld(path) {
    return new this.#errors.WorkflowWorldError(
      `the Stepwell server at ${this.#url('')} does not speak version ${PROTOCOL} of the World protocol, which this ` +
        `@stepwell/world needs (${path}). Update the server, install the package that it serves ` +
        '(npm install <server>/clients/world.tgz), or set STEPWELL_CLIENT=official.',
      { code: 'world_version', url: this.#url(path) },
    );
  }

  #transportError(err, method, path) {
    return new this.#errors.WorkflowWorldError(`${method} ${path.split('?')[0]}: ${err.message || err.code}`, {
      code: 'TRANSPORT', url: this.#url(path), cause: err,
    });
  }

  /** The address without its query, which may be secret: hooks are found by their tokens. */
  #url(path) {
    return this.#base.origin + this.#prefix + path.split('?')[0];
  }
}

/** Whether an error of a request says that no server, or none with a database, answered. */
export function isAway(err) {
  return err?.code === 'TRANSPORT' || UNAVAILABLE.has(err?.status);
}

function mayRepeat(answer, err, repeatable) {
  return isUndone(answer, err) || (repeatable && (!answer || UNAVAILABLE.has(answer.status)));
}

/** Whether a failed request may have been carried out. */
function mayBeDone(answer, err) {
  return !isUndone(answer, err) && (!answer || UNAVAILABLE.has(answer.status));
}

/** Whether nobody has looked at a failed request: it found no server, or an overloaded one. */
function isUndone(answer, err) {
  return answer ? answer.status === 503 && problem(answer).code === 'overloaded' : UNSENT.has(err.code);
}

/** Decodes the body of an answer: CBOR or JSON. */
export function body(answer) {
  if (answer.body.length === 0) return undefined;
  return answer.headers['content-type']?.includes(MIME_CBOR) ? decode(answer.body) : JSON.parse(answer.body);
}

/** Returns a query string without the parameters that are undefined or null. */
export function search(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? '?' + new URLSearchParams(given.map(([name, value]) => [name, String(value)])) : '';
}

export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Reads an answer to its end. An answer that is cut is an error. */
function whole(answer) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    answer.on('data', (chunk) => chunks.push(chunk));
    answer.on('error', reject);
    answer.on('close', () => {
      if (!answer.complete) return reject(new Interrupted('the answer is cut'));
      resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(chunks) });
    });
  });
}

function webStream(answer, toError) {
  return new ReadableStream(
    {
      start(controller) {
        answer.on('data', (chunk) => {
          controller.enqueue(new Uint8Array(chunk));
          if (controller.desiredSize <= 0) answer.pause();
        });
        answer.on('error', () => {}); // close follows
        answer.on('close', () => {
          try {
            if (answer.complete) controller.close();
            else controller.error(toError(new Interrupted('the stream is cut')));
          } catch {
            // cancelled
          }
        });
      },
      pull: () => void answer.resume(),
      cancel: () => void answer.destroy(),
    },
    { highWaterMark: 64 * 1024, size: (chunk) => chunk.byteLength },
  );
}

/** The problem in an answer. The API /v1 nests it. */
function problem(answer) {
  try {
    const body = JSON.parse(answer.body);
    const { message, code, error, details, seq, seqInBand } = body.error?.message ? body.error : body;
    return { message, code: code ?? (typeof error === 'string' ? error : undefined), details, seq, seqInBand };
  } catch {
    return {};
  }
}

/** The header Retry-After in seconds. */
function retryAfter(answer) {
  const seconds = Number.parseInt(answer.headers['retry-after'], 10);
  return Number.isNaN(seconds) ? undefined : seconds;
}

function parts(body) {
  if (!body) return [];
  return Array.isArray(body) ? body : [body];
}

function size(body) {
  return parts(body).reduce((sum, part) => sum + (typeof part === 'string' ? Buffer.byteLength(part) : part.length), 0);
}
