// The World's streams.
import { deliveryOf } from './delivery.js';
import { MIME_CBOR, body, search } from './http.js';

// The limits of one request. The first is the server's.
const MAX_CHUNKS = 1000;
const MAX_BYTES = 1024 * 1024;
/** How long after a request the next chunks of a stream are collected. */
const LINGER_MS = 10;

const id = encodeURIComponent;
const encoder = new TextEncoder();

/** Returns the World's methods for streams. The 4.x line has them on the World itself, in another order of arguments. */
export function createStreamer(http, specVersion) {
  const streams = createStreams(http, specVersion);
  // The SDK need not collect chunks for a while before it writes them: they are collected here.
  if (specVersion > 3) return { streams, streamFlushIntervalMs: 0 };
  return {
    streamFlushIntervalMs: 0,
    writeToStream: (name, runId, chunk) => streams.write(runId, name, chunk),
    writeToStreamMulti: (name, runId, chunks) => streams.writeMulti(runId, name, chunks),
    closeStream: (name, runId) => streams.close(runId, name),
    readFromStream: (name, startIndex) => http.open(`/v2/stream/${id(name)}${search({ startIndex })}`),
    listStreamsByRunId: (runId) => streams.list(runId),
    getStreamChunks: (name, runId, options) => streams.getChunks(runId, name, options),
    getStreamInfo: (name, runId) => streams.getInfo(runId, name),
  };
}

/**
 * The chunks of one stream on their way to the server, in their order. What is added while a request is under way, or
 * soon after, goes with the next one.
 */
class Outbox {
  #chunks = [];
  #bytes = 0;
  #send;
  #idle;
  #sending; // rejects with what went wrong
  #waiting = 0; // how many wait for it
  #hurry = () => {};
  #promised = false; // whether somebody relies on chunks without having waited for them
  #error; // of chunks that somebody relies on, until he is told

  /**
   * @param send stores chunks
   * @param idle is called when nothing is left to send or to tell
   */
  constructor(send, idle) {
    this.#send = send;
    this.#idle = idle;
  }

  get full() {
    return this.#bytes >= MAX_BYTES || this.#chunks.length >= MAX_CHUNKS;
  }

  /** Takes chunks, to be sent soon. @throws if chunks that were taken before could not be stored */
  take(chunks) {
    this.#add(chunks);
    this.#promised = true;
  }

  /** Stores chunks, behind all that were taken. @throws if they, or others before them, could not be stored */
  store(chunks) {
    this.#add(chunks);
    return this.stored();
  }

  /** Resolves when all chunks are stored. @throws if some could not be */
  async stored() {
    await this.settled();
    this.#tell();
  }

  /** Resolves when all chunks are stored. @throws if some of those that were on their way could not be */
  async settled() {
    this.#waiting++;
    this.#hurry();
    try {
      await this.#sending;
    } finally {
      this.#waiting--;
    }
  }

  /** Reports an error that nobody was told. */
  giveUp(stream) {
    try {
      this.#tell();
    } catch (err) {
      console.error(`[@stepwell/world] chunks of stream ${stream} were not stored:`, err);
    }
  }

  #add(chunks) {
    this.#tell();
    this.#chunks.push(...chunks);
    for (const { length } of chunks) this.#bytes += length;
    if (this.#sending) return;
    this.#sending = this.#run();
    this.#sending.catch(() => {}); // whoever waits is told
  }

  #tell() {
    const error = this.#error;
    if (!error) return;
    this.#error = undefined;
    this.#idle();
    throw error;
  }

  async #run() {
    try {
      while (this.#chunks.length > 0) {
        await this.#send(this.#next());
        if (this.#waiting === 0) await this.#linger();
      }
      this.#promised = false;
      this.#idle();
    } catch (err) {
      this.#chunks = [];
      this.#bytes = 0;
      if (this.#promised) this.#error = err;
      else this.#idle();
      throw err;
    } finally {
      this.#sending = undefined;
    }
  }

  /** Waits for more chunks, unless somebody waits for these. */
  #linger() {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, LINGER_MS);
      this.#hurry = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #next() {
    let count = 0;
    for (let bytes = 0; count < this.#chunks.length && count < MAX_CHUNKS; count++) {
      bytes += this.#chunks[count].length;
      if (count > 0 && bytes > MAX_BYTES) break;
    }
    const next = this.#chunks.splice(0, count);
    for (const { length } of next) this.#bytes -= length;
    return next;
  }
}

function createStreams(http, specVersion) {
  const path = (runId, name) => `/v2/runs/${id(runId)}/streams/${id(name)}`;
  const outboxes = new Map();
  // Before spec version 6, the SDK waits for each chunk before it writes the next.
  const writesOneByOne = specVersion < 6;

  // A write is not repeated after a lost answer: its chunks might be there twice.
  async function put(runId, name, options) {
    await http.request('PUT', `/v2/runs/${id(runId)}/stream/${id(name)}`, { waits: true, ...options });
  }

  function send(runId, name, chunks) {
    const body = chunks.flatMap((chunk) => [length(chunk), chunk]);
    return put(runId, name, { body, headers: { 'x-stream-multi': 'true' } });
  }

  function outboxOf(runId, name) {
    const key = `${runId} ${name}`;
    if (!outboxes.has(key)) {
      outboxes.set(key, new Outbox((chunks) => send(runId, name, chunks), () => outboxes.delete(key)));
    }
    return outboxes.get(key);
  }

  /** Waits for the chunks of this process, so that it reads what it has written. */
  const written = (runId, name) => outboxes.get(`${runId} ${name}`)?.settled().catch(() => {});

  async function writeMulti(ofRun, name, chunks) {
    const runId = await ofRun;
    const bytes = chunks.map((chunk) => (typeof chunk === 'string' ? encoder.encode(chunk) : chunk));
    if (bytes.length === 0) return;
    const outbox = outboxOf(runId, name);
    const delivery = writesOneByOne && !outbox.full && deliveryOf(runId);
    if (!delivery) return outbox.store(bytes);
    delivery.expect(name, outbox);
    outbox.take(bytes);
  }

  async function close(ofRun, name) {
    const runId = await ofRun;
    await outboxes.get(`${runId} ${name}`)?.stored();
    await put(runId, name, { headers: { 'x-stream-done': 'true' }, repeatable: true });
  }

  return {
    write: (runId, name, chunk) => writeMulti(runId, name, [chunk]),
    writeMulti,
    close,
    get: (runId, name, startIndex) => http.open(`/v3/runs/${id(runId)}/stream/${id(name)}${search({ startIndex })}`),

    async list(runId) {
      return body(await http.request('GET', `/v2/runs/${id(runId)}/streams`, { repeatable: true, accept: 'application/json' }));
    },

    async getChunks(runId, name, { limit, cursor } = {}) {
      await written(runId, name);
      const answer = await http.request('GET', `${path(runId, name)}/chunks${search({ limit, cursor })}`, {
        repeatable: true, accept: MIME_CBOR,
      });
      return body(answer);
    },

    async getInfo(runId, name) {
      await written(runId, name);
      return http.get(`${path(runId, name)}/info`);
    },
  };
}

function length(chunk) {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(chunk.length);
  return bytes;
}
