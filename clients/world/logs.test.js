import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Logs, cursorAt, positionAt, positionOf } from './lib/logs.js';

const event = (position, data = {}) => ({ eventId: `evnt_${String(position).padStart(26, '0')}`, ...data });
const positions = (events) => events.map(({ eventId }) => positionOf(eventId));

test('positions, event IDs and cursors', () => {
  assert.equal(positionOf('evnt_00000000000000000000000012'), 12);
  assert.equal(cursorAt(12), 'eid:evnt_00000000000000000000000012');
  assert.equal(cursorAt(0), undefined);
  assert.equal(positionAt(cursorAt(12)), 12);
  assert.equal(positionAt(undefined), 0);
  for (const foreign of ['x', 'eid:evnt_12', 'eid:evnt_' + 'Z'.repeat(26)]) assert.equal(positionAt(foreign), -1);
  for (const foreign of ['evnt_01M7', 'evnt_', 'wevt_00000000000000000000000012']) assert.throws(() => positionOf(foreign));
});

test('events are added in their order, each once', () => {
  const logs = new Logs();
  assert.equal(logs.add('r', [event(1), event(2)]), true);
  assert.equal(logs.add('r', [event(2), event(3)]), true);
  assert.deepEqual(positions(logs.after('r', 0)), [1, 2, 3]);
  assert.deepEqual(positions(logs.after('r', 2)), [3]);
});

test('what follows a gap is not known', () => {
  const logs = new Logs();
  logs.add('r', [event(1)]);
  assert.equal(logs.add('r', [event(3)]), false);
  assert.equal(logs.length('r'), 1);
  assert.equal(logs.add('other', [event(2)]), false);
  assert.equal(logs.length('other'), 0);
});

test('callers cannot change the log', () => {
  const logs = new Logs();
  logs.add('r', [event(1, { eventData: { a: 1 } })]);
  const [mine] = logs.after('r', 0);
  mine.eventData.a = 2;
  mine.extra = true;
  assert.deepEqual(logs.after('r', 0), [event(1, { eventData: { a: 1 } })]);
});

test('knows the steps that have started', () => {
  const logs = new Logs();
  logs.add('r', [event(1, { eventType: 'step_created', correlationId: 'a' }), event(2, { eventType: 'step_started', correlationId: 'b' })]);
  assert.deepEqual([logs.hasStarted('r', 'a'), logs.hasStarted('r', 'b'), logs.hasStarted('other', 'b')], [false, true, false]);
});

test('memory is bounded: the least recently used runs are dropped', () => {
  const payload = () => event(1, { eventData: { input: new Uint8Array(10_000) } });
  const logs = new Logs({ maxBytes: 25_000, maxRuns: 100 });
  logs.add('a', [payload()]);
  logs.add('b', [payload()]);
  logs.add('a', [event(2)]);
  logs.add('c', [payload()]);
  assert.deepEqual(['a', 'b', 'c'].map((run) => logs.length(run)), [2, 0, 1]);
  assert.ok(logs.bytes <= 25_000);
  logs.drop('a');
  logs.drop('c');
  assert.equal(logs.bytes, 0);
});

test('memory counts all data, and events do not keep the message that brought them', () => {
  const logs = new Logs();
  const message = new Uint8Array(1_000_000);
  const error = { message: 'm'.repeat(20_000), details: [new Uint8Array(30_000)] };
  logs.add('r', [event(1, { eventData: { input: message.subarray(0, 10_000), error } })]);
  assert.ok(logs.bytes >= 60_000 && logs.bytes < 62_000, `${logs.bytes} bytes`);
  assert.equal(logs.at('r', 1).eventData.input.buffer.byteLength, 10_000);
});

test('the number of runs is bounded', () => {
  const logs = new Logs({ maxRuns: 3 });
  for (const run of 'abcde') logs.add(run, [event(1)]);
  assert.deepEqual([...'abcde'].map((run) => logs.length(run)), [0, 0, 1, 1, 1]);
});
