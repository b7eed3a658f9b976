// Makes vectors.json: CBOR and frames as the clients' encoder writes them, and what their decoder makes of ours.
//
//   go test ./entities/codec -run TestMarshal -update     # writes emitted.json
//   cd /tmp && npm install cbor-x@1.6.0 && cp REPO/entities/codec/testdata/gen.mjs . &&
//     node gen.mjs REPO/entities/codec/testdata
//
// cbor-x 1.6.0 is what @workflow/world-vercel 4.7.4 and 5.0.0-beta.31 depend on. Like them (dist/frames.js,
// dist/queue.js), this uses its plain encode and decode, without options.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decode, encode } from 'cbor-x';

const dir = process.argv[2];
const hex = (b) => Buffer.from(b).toString('hex');

const u32 = (n) => { const b = Buffer.alloc(4); b.writeUInt32BE(n); return b; };
const frame = (meta, body = '') => { // as encodeFrame of world-vercel's dist/frames.js
  const m = encode(meta), b = Buffer.from(body);
  return Buffer.concat([u32(m.length), Buffer.from(m), u32(b.length), b]);
};

const values = {
  zero: 0, minusOne: -1, minInt32: -(2 ** 31), belowInt32: -(2 ** 31) - 1, maxUint32: 2 ** 32 - 1, aboveUint32: 2 ** 32,
  stateUpdatedAt: 1763000000000, maxSafe: Number.MAX_SAFE_INTEGER, fraction: 1.5, nan: NaN, bigInt: 5n, bigIntNegative: -5n,
  bigIntHuge: 2n ** 64n,
  epoch: new Date(0), wholeSecond: new Date(1e12), milliseconds: new Date(1795225268528), beforeEpoch: new Date(-1),
  lastUint32Second: new Date((2 ** 32 - 1) * 1000), afterUint32: new Date(2 ** 32 * 1000), year9999: new Date('9999-12-31T23:59:59.999Z'),
  invalidDate: new Date(NaN),
  uint8Array: new Uint8Array([1, 2]), buffer: Buffer.from([1, 2]), emptyUint8Array: new Uint8Array(0), uint16Array: new Uint16Array([1]),
  map: new Map([['a', 1], [2, 'b']]), set: new Set([1, 'a']), undefined: undefined, null: null,
  error: new Error('x'), regexp: /a/g,
  surrogateShort: 'cut \ud83d', surrogateLong: 'x'.repeat(70) + '\ud83d', emoji: '\ud83d\ude00',
  withUndefined: { a: undefined, b: 1, c: null },
  context: { workflowCoreVersion: '4.8.9', features: { encryption: false }, big: 12345678901234567890n, m: new Map([[{}, 1], [{}, 2]]),
    s: new Set(['x']), u: undefined, when: new Date(1795225268528), bytes: new Uint8Array([7]), at: 1763000000000 },
  meta: { eventType: 'wait_created', specVersion: 3, occurredAt: new Date(1795225268528), remoteRefBehavior: 'lazy', correlationId: 'wait_1',
    vercelId: undefined, resumeAt: new Date(1795225300000), stateUpdatedAt: 1763000000000, hookIsWebhook: true,
    executionContext: { traceCarrier: {}, features: { encryption: false } }, someday: [1, { x: 2n }] },
};
const binaries = {
  request: frame({ eventType: 'run_created', specVersion: 3 }, 'devl[1]'),
  noBody: frame({ eventType: 'run_started' }),
  list: Buffer.concat([frame({ eventId: 'evnt_1' }, 'one'), frame({ eventId: 'evnt_2' }), frame({ _end: 1, next: 'evnt_2', hasMore: true })]),
  emptyList: frame({ _end: 1, hasMore: false }),
  chunks: Buffer.concat([u32(2), Buffer.from('ab'), u32(1), Buffer.from('c')]), // protocol appendix
};

// show renders a decoded value with its JS type.
const show = (v) => {
  if (typeof v === 'bigint') return `${v}n`;
  if (typeof v === 'string') return JSON.stringify(v);
  if (v instanceof Date) return `Date(${v.getTime()})`;
  if (v instanceof Uint8Array) return `bytes(${hex(v)})`;
  if (v instanceof Set) return `Set[${[...v].map(show).join(', ')}]`;
  if (v instanceof Map) return `Map{${[...v].map(([k, x]) => `${show(k)}: ${show(x)}`).join(', ')}}`;
  if (Array.isArray(v)) return `[${v.map(show).join(', ')}]`;
  if (v && typeof v === 'object') return `{${Object.entries(v).map(([k, x]) => `${k}: ${show(x)}`).join(', ')}}`;
  return String(v);
};
const read = (h) => { try { return show(decode(Buffer.from(h, 'hex'))); } catch (e) { return `throws: ${e.message}`; } };

const emitted = JSON.parse(readFileSync(join(dir, 'emitted.json')));
// Legal CBOR that the decoder throws on or misreads: why Marshal and Unmarshal are strict.
const hostile = ['1b0000000000000005', '3a80000000', '3affffffff', 'c11b0000000000000001', '5f4101ff', '7f6161ff', 'a1810101',
  'd81d05', 'd81b82695f5f70726f746f5f5f01', 'd84543010203', 'd90102a0', 'e0', 'f820'];
const out = {
  cborx: '1.6.0',
  values: Object.fromEntries(Object.entries(values).map(([k, v]) => [k, hex(encode(v))])),
  binaries: Object.fromEntries(Object.entries(binaries).map(([k, v]) => [k, hex(v)])),
  reads: Object.fromEntries([...emitted, ...hostile].map((h) => [h, read(h)])),
};
writeFileSync(join(dir, 'vectors.json'), JSON.stringify(out, null, 2) + '\n');
