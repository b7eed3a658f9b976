// node --import: lets the suite's delivery counter read what this protocol delivers.
//
// The suite's app counts deliveries per run with `await request.clone().json()` in its flow route, and takes a
// body that is no JSON for none of its runs. Over HTTP queue bodies are CBOR, so it would count nothing. Only
// that one call is changed: json() of a CBOR request to the flow route. The SDK reads its messages otherwise.
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
