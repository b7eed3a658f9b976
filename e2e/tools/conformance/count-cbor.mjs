// Loaded with node --import. Lets the suite's delivery counter read the messages of deliveries.
//
// The suite's app counts deliveries per run with `await request.clone().json()` in its flow route, and ignores bodies
// that are not JSON. Over HTTP, queue messages are CBOR, alone or in the first frame of a delivery with the run's log,
// so it would count nothing. This file changes only json() of such requests to the flow route. The SDK itself does not
// use json() to read messages.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const readJSON = Request.prototype.json;
let cbor;

Request.prototype.json = async function json() {
  const type = this.headers.get('content-type') ?? '';
  const isFrames = type.startsWith('application/vnd.stepwell.world');
  const isCBOR = isFrames || type.startsWith('application/cbor');
  if (!isCBOR || new URL(this.url).pathname !== '/.well-known/workflow/v1/flow') return readJSON.call(this);
  cbor ??= require(require.resolve('cbor-x', { paths: [require.resolve('@workflow/world-testing')] }));
  const body = Buffer.from(await this.arrayBuffer());
  return cbor.decode(isFrames ? firstBody(body) : body);
};

// A frame is u32 length, metadata, u32 length, body.
function firstBody(frames) {
  const at = 4 + frames.readUInt32BE(0);
  return frames.subarray(at + 4, at + 4 + frames.readUInt32BE(at));
}
