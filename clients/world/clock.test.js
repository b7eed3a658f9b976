import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { Clock, clock, ulid } from './lib/clock.js';
import { Http } from './lib/http.js';

const AT = Date.parse('2026-10-01T12:00:00Z');
const timeOf = (id) => [...id.slice(0, 10)].reduce((ms, digit) => ms * 32 + '0123456789ABCDEFGHJKMNPQRSTVWXYZ'.indexOf(digit), 0);

for (const [name, now, ahead] of [
  ['of this process, if they agree', AT, 0],
  ['of this process, within the second that an answer tells', AT + 1900, 0],
  ['of the server, which is ahead', AT - 600_000, 600_500],
  ['of the server, which is behind', AT + 600_000, -599_500],
]) {
  test(`the time is that ${name}`, (t) => {
    t.mock.timers.enable({ apis: ['Date'], now });
    const told = new Clock();
    assert.equal(told.known, false);
    told.note('Thu, 01 Oct 2026 12:00:00 GMT');
    assert.equal(told.known, true);
    assert.equal(told.now() - now, ahead);
    told.note('yesterday');
    told.note(undefined);
    assert.equal(told.now() - now, ahead);
  });
}

test('a clock that was set right is noticed', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: AT });
  const told = new Clock();
  told.note('Thu, 01 Oct 2026 13:00:00 GMT');
  told.note('Thu, 01 Oct 2026 12:00:00 GMT');
  assert.equal(told.now(), AT);
});

test('every answer tells the time, also a refusal', async (t) => {
  const later = new Date(Date.now() + 3_600_000);
  const server = createServer((_, res) => res.writeHead(404, { date: later.toUTCString() }).end('{}')).listen(0, '127.0.0.1');
  await once(server, 'listening');
  class WorkflowWorldError extends Error {}
  const http = new Http({ base: `http://127.0.0.1:${server.address().port}/sdk`, errors: { WorkflowWorldError }, userAgent: 'test' });
  t.after(() => {
    http.close();
    server.close();
    clock.note(new Date().toUTCString());
  });
  await assert.rejects(http.get('/x'));
  assert.ok(Math.abs(clock.now() - later) < 5000);
});

test('a ULID has its time, and is greater than those before it, even if the clock was set back', () => {
  const ids = [AT, AT, AT, AT + 1, AT].map(ulid);
  assert.deepEqual(ids, [...ids].sort());
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(ids.map(timeOf), [AT, AT, AT, AT + 1, AT + 1]);
  for (const id of ids) assert.match(id, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
});
