// Loaded with node --import. Lets the suite's delivery counter read CBOR messages.
//
// The suite's app counts deliveries per run with `await request.clone().json()` in its flow route, and ignores bodies
// that are not JSON. Over HTTP, queue messages are CBOR, so it would count nothing. This file changes only json() of
// CBOR requests to the flow route. The SDK itself does not use json() to read messages.
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const readJSON = Request.prototype.json;
let cbor;

Request.prototype.json = async function json() {
  const isCBOR = this.headers.get('content-type')?.startsWith('application/cbor');
  if (!isCBOR || new URL(this.url).pathname !== '/.well-known/workflow/v1/flow') return readJSON.call(this);
  cbor ??= require(require.resolve('cbor-x', { paths: [require.resolve('@workflow/world-testing')] }));
  return cbor.decode(new Uint8Array(await this.arrayBuffer()));
};
