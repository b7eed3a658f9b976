import assert from 'node:assert/strict';
import { test } from 'node:test';
import { frame, readFrames, readList } from './lib/frames.js';

const join = (...frames) => Buffer.concat(frames.flat());

test('a frame is two lengths, metadata and a body', () => {
  // {"a": 1} is a1 61 61 01.
  assert.equal(join(frame({ a: 1 }, Buffer.from('xyz'))).toString('hex'), '00000004a161610100000003' + '78797a');
});

test('frames are read as they were written', () => {
  const frames = readFrames(join(frame({ a: 1 }, new Uint8Array([7])), frame({ b: 'x' })));
  assert.deepEqual(frames, [
    { meta: { a: 1 }, body: new Uint8Array([7]) },
    { meta: { b: 'x' }, body: new Uint8Array(0) },
  ]);
});

test('a list that is cut anywhere is never taken for a whole one', () => {
  const list = join(frame({ eventId: 1 }, Buffer.from('payload')), frame({ eventId: 2 }), frame({ _end: 1, hasMore: false }));
  for (let length = 0; length < list.length; length++) {
    assert.throws(() => readList(list.subarray(0, length)), `${length} of ${list.length} bytes`);
  }
  const { frames, end } = readList(list);
  assert.equal(frames.length, 2);
  assert.deepEqual(end, { _end: 1, hasMore: false });
});
