// Writes payloads as a Workflow SDK's client makes them to standard output, for the tests of package payload:
//   cd e2e/beta55 && npm ci && node ../../eventlog/payload/testdata/generate.mjs > ../../eventlog/payload/testdata/sdk.json
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(process.cwd() + '/');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { dehydrateStepReturnValue, dehydrateStepError, getSerializeStream, getByteFramingStream, getExternalReducers } = await load('@workflow/core/serialization');
const { stringify } = await load('devalue');

const base64 = (bytes) => Buffer.from(bytes).toString('base64');
const cycle = { name: 'root', list: [] };
cycle.list.push({ up: cycle });
const twice = { x: 1 };
const sparse = [];
sparse[30] = 'end';
const cause = Object.assign(new Error('outer', { cause: new RangeError('inner') }), {});
for (const e of [cause, cause.cause]) e.stack = 'the stack';

const values = {
  undefined: undefined, null: null, true: true, number: 1.5, text: 'é "quoted" \u2028 <b>', 'negative zero': -0, nan: NaN,
  infinities: [Infinity, -Infinity, NaN, -0], 'undefined inside': { a: undefined, b: [undefined, 1] },
  holes: [1, , 3], sparse, date: new Date(1772366400123), 'no date': new Date(NaN), bigint: 12345678901234567890n,
  regexp: /a"b\/c/gi, set: new Set(['a', 1]), 'set of a list': new Set([[1, 2]]), 'empty set': new Set(),
  map: new Map([['a', 1], ['b', { c: 2 }]]), 'map by number': new Map([[1, 'one'], [{ k: 1 }, 'two']]),
  'empty map': new Map(), url: new URL('https://example.com/a?b=c'), 'no search': new URLSearchParams(''),
  search: new URLSearchParams('a=1&b=2'), headers: new Headers({ 'x-b': '2', 'x-a': '1' }),
  bytes: new Uint8Array([1, 2, 255]), 'no bytes': new Uint8Array(), buffer: new Uint8Array([7]).buffer,
  floats: new Float32Array([1.5]), cycle, twice: [twice, twice], error: cause, 'no prototype': Object.assign(Object.create(null), { a: 1 }),
  nested: { a: [{ b: [[], {}] }] }, 'key to escape': { 'a"b\n': 1 }, 'short and compressed': 'x'.repeat(10),
};
const shown = {};
for (const [name, value] of Object.entries(values)) {
  shown[name] = base64(await dehydrateStepReturnValue(value, 'wrun_1', undefined));
}
shown.compressed = base64(await dehydrateStepReturnValue({ text: 'x'.repeat(5000) }, 'wrun_1', undefined, [], globalThis, false, false, true));
const fatal = Object.assign(new Error('no use'), { name: 'FatalError' });
fatal.stack = 'the stack';
shown['fatal error'] = base64(await dehydrateStepError(fatal, 'wrun_1', undefined));

const bare = {};
const view = new Uint8Array([1, 2, 3, 4]).subarray(1, 3);
for (const [name, value] of Object.entries({
  date: new Date(1772366400123), set: new Set(['a', 1]), map: new Map([[1, 2]]), regexp: /a/g, bigint: 7n, view,
  boxed: [Object('boxed')], whole: new Uint16Array([1, 2]), url: new URL('https://example.com/'), empty: new Set(),
})) bare[name] = base64(Buffer.from('devl' + stringify(value)));

const texts = [
  '1', '-0', '1e400', '-1e400', '"one"', 'null', 'true', '[]', '{}', '[1,1,"1",[1],[]]', '{"a":{"b":[null,{"a":1}]},"c":true}',
  ' { "a" : [ 1 , 2.50 , 1e21 , 1e-7 , 0.1 , 12345678901234567890 ] } ', '{"a":1,"a":2}', '["\\u0041","A","é\\n"]', '[false,false,null,null]',
];
const written = {};
for (const text of texts) {
  written[text] = Buffer.from(await dehydrateStepReturnValue(JSON.parse(text), 'wrun_1', undefined)).toString();
}
// Chunks of streams: each is one frame.
const frames = [];
const write = async (transform, items) => {
  const list = ReadableStream.from(items).pipeThrough(transform);
  for await (const chunk of list) frames.push(base64(chunk));
};
await write(getSerializeStream(getExternalReducers(globalThis, [], 'wrun_1', undefined), undefined), ['line 1: <b>é</b>\n', { at: new Date(1772366400123), n: 7n }]);
await write(getByteFramingStream(), [new TextEncoder().encode('ab'), new Uint8Array([255, 0])]);
process.stdout.write(JSON.stringify({ shown, bare, written, frames }, null, 1) + '\n');
