import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decode, encode } from './lib/cbor.js';

const hex = (value) => Buffer.from(value).toString('hex');
const bytes = (text) => new Uint8Array(Buffer.from(text, 'hex'));

// The encodings are examples of RFC 8949, appendix A, unless the comment says why they differ.
for (const [value, encoded] of [
  [0, '00'],
  [23, '17'],
  [24, '1818'],
  [1000, '1903e8'],
  [1000000, '1a000f4240'],
  [4294967295, '1affffffff'],
  [4294967296, 'fb41f0000000000000'], // larger integers are floats: 64-bit integers become BigInts elsewhere (§2.1)
  [-1, '20'],
  [-1000, '3903e7'],
  [-2147483648, '3a7fffffff'],
  [-2147483649, 'fbc1e0000000200000'], // smaller ones are misread by the official decoder
  [1.1, 'fb3ff199999999999a'],
  [-0, 'fb8000000000000000'],
  [NaN, 'fb7ff8000000000000'],
  [false, 'f4'],
  [null, 'f6'],
  ['', '60'],
  ['ü水', '65c3bce6b0b4'],
  [new Uint8Array([1, 2, 3, 4]), '4401020304'],
  [[], '80'],
  [[1, [2, 3]], '8201820203'],
  [{ a: 1, b: [2, 3] }, 'a26161016162820203'],
  [new Date(1363896240000), 'c11a514b67b0'],
  [new Date(1363896240500), 'c1fb41d452d9ec200000'],
  [18446744073709551615n, '1bffffffffffffffff'],
]) {
  test(`encodes ${typeof value} ${hex(encode(value))}`, () => {
    assert.equal(hex(encode(value)), encoded);
    assert.deepEqual(decode(bytes(encoded)), value);
  });
}

for (const [encoded, value] of [
  ['1b000000e8d4a51000', 1000000000000],
  ['f93c00', 1],
  ['f9c400', -4],
  ['f90001', 5.960464477539063e-8],
  ['f97c00', Infinity],
  ['fa47c35000', 100000],
  ['9f01ff', [1]],
  ['bf616101ff', { a: 1 }],
  ['d84044010203', undefined], // cut
  ['d8404401020304', new Uint8Array([1, 2, 3, 4])], // the official encoder's tag for byte strings
  ['b900016161f7', { a: undefined }], // its maps have a length of 16 bits, and undefined values
  ['c074323031332d30332d32315432303a30343a30305a', new Date('2013-03-21T20:04:00Z')],
]) {
  test(`decodes ${encoded}`, () => {
    if (value === undefined) assert.throws(() => decode(bytes(encoded)), /cut/);
    else assert.deepEqual(decode(bytes(encoded)), value);
  });
}

test('leaves out undefined properties and functions', () => {
  assert.deepEqual(decode(encode({ a: undefined, b: 1, c() {} })), { b: 1 });
});

test('payloads are plain Uint8Arrays, not Buffers', () => {
  assert.equal(decode(encode(Buffer.from('x'))).constructor, Uint8Array);
});

test('a key cannot change the prototype', () => {
  const map = decode(encode(new Map([['__proto__', { admin: true }]])));
  assert.equal(map.admin, undefined);
  assert.ok(Object.hasOwn(map, '__proto__'));
});

test('every cut of a value is an error', () => {
  const whole = encode({ text: 'hello', list: [1, 1000, 1.5], bytes: new Uint8Array(30), at: new Date(1) });
  for (let length = 0; length < whole.length; length++) {
    assert.throws(() => decode(whole.subarray(0, length)), RangeError, `${length} bytes`);
  }
  assert.throws(() => decode(Buffer.concat([whole, Buffer.from([0])])), /bytes after the value/);
});
