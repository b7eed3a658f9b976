// The World's streams.
import { MIME_CBOR, body, search } from './http.js';

// The server's limit for one request.
const MAX_CHUNKS = 1000;

const id = encodeURIComponent;
const encoder = new TextEncoder();

/** Returns the World's methods for streams. The 4.x line has them on the World itself, in another order of arguments. */
export function createStreamer(http, specVersion) {
  const streams = createStreams(http);
  if (specVersion > 3) return { streams };
  return {
    writeToStream: (name, runId, chunk) => streams.write(runId, name, chunk),
    writeToStreamMulti: (name, runId, chunks) => streams.writeMulti(runId, name, chunks),
    closeStream: (name, runId) => streams.close(runId, name),
    readFromStream: (name, startIndex) => http.open(`/v2/stream/${id(name)}${search({ startIndex })}`),
    listStreamsByRunId: (runId) => streams.list(runId),
    getStreamChunks: (name, runId, options) => streams.getChunks(runId, name, options),
    getStreamInfo: (name, runId) => streams.getInfo(runId, name),
  };
}

function createStreams(http) {
  const path = (runId, name) => `/v2/runs/${id(runId)}/streams/${id(name)}`;

  // A write is not repeated after a lost answer: its chunks might be there twice.
  async function put(runId, name, options) {
    await http.request('PUT', `/v2/runs/${id(await runId)}/stream/${id(name)}`, { waits: true, ...options });
  }

  async function writeMulti(runId, name, chunks) {
    const bytes = chunks.map((chunk) => (typeof chunk === 'string' ? encoder.encode(chunk) : chunk));
    for (let at = 0; at < bytes.length; at += MAX_CHUNKS) {
      const body = bytes.slice(at, at + MAX_CHUNKS).flatMap((chunk) => [length(chunk), chunk]);
      await put(runId, name, { body, headers: { 'x-stream-multi': 'true' } });
    }
  }

  return {
    write: (runId, name, chunk) => writeMulti(runId, name, [chunk]),
    writeMulti,
    close: (runId, name) => put(runId, name, { headers: { 'x-stream-done': 'true' }, repeatable: true }),
    get: (runId, name, startIndex) => http.open(`/v3/runs/${id(runId)}/stream/${id(name)}${search({ startIndex })}`),

    async list(runId) {
      return body(await http.request('GET', `/v2/runs/${id(runId)}/streams`, { repeatable: true, accept: 'application/json' }));
    },

    async getChunks(runId, name, { limit, cursor } = {}) {
      const answer = await http.request('GET', `${path(runId, name)}/chunks${search({ limit, cursor })}`, {
        repeatable: true, accept: MIME_CBOR,
      });
      return body(answer);
    },

    getInfo: (runId, name) => http.get(`${path(runId, name)}/info`),
  };
}

function length(chunk) {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32BE(chunk.length);
  return bytes;
}
