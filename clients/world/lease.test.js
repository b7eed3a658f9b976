import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoff, createQueue } from './lib/queue.js';

const HEADERS = {
  'ce-vqsmessageid': 'm', 'ce-vqsqueuename': '__wkf_step_s', 'ce-vqsreceipthandle': 'rh/1', 'ce-vqsdeliverycount': '1',
  'ce-vqscreatedat': '2026-10-01T12:00:00.000Z', 'content-type': 'application/json',
};

/** Delivers a message to a handler that works until it is ended. Returns the requests to the server, and the end. */
async function deliver(more = {}) {
  const sent = [];
  const http = {
    async request(method, path, { body }) {
      sent.push({ method, path, ...JSON.parse(body) });
      throw new Error('the server is away');
    },
  };
  const queue = createQueue({ http, commits: {}, log: {}, deployment: 'd', specVersion: 2 });
  let end;
  let begun;
  const begins = new Promise((resolve) => (begun = resolve));
  const handle = queue.createQueueHandler('', () => {
    begun();
    return new Promise((resolve) => (end = resolve));
  });
  const body = JSON.stringify({ payload: {}, queueName: '__wkf_step_s', deploymentId: 'd' });
  const answer = handle(new Request('http://app/', { method: 'POST', headers: { ...HEADERS, ...more }, body }));
  await Promise.race([begins, answer]);
  return { sent, end: async () => { end(); return answer; } };
}

test('a handler that works says so after a second and then every three, until it has ended', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { sent, end } = await deliver();
  t.mock.timers.tick(999);
  assert.equal(sent.length, 0);
  t.mock.timers.tick(1);
  for (let n = 1; n <= 4; n++, t.mock.timers.tick(3000)) assert.equal(sent.length, n);
  assert.deepEqual(sent[0], {
    method: 'PATCH', path: '/queues-proxy/api/v3/topic/__wkf_step_s/consumer/default/lease/rh%2F1',
    working: true, visibilityTimeoutSeconds: 300,
  });
  assert.equal((await end()).status, 200);
  const { length } = sent;
  t.mock.timers.tick(60_000);
  assert.equal(sent.length, length);
});

test('the polls keep the leases of what they have fetched', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { sent } = await deliver({ 'stepwell-pulled': '1' });
  t.mock.timers.tick(60_000);
  assert.deepEqual(sent, []);
});

test('a message waits longer with each failure, and not for long if the server was away', () => {
  const away = [{ status: 503 }, { status: 502 }, { code: 'TRANSPORT' }];
  for (const err of away) for (let n = 1; n <= 16; n++) assert.ok(backoff(err, n) <= 10, `${JSON.stringify(err)}, attempt ${n}`);
  for (const err of [...away, new Error('its own'), undefined]) assert.ok(backoff(err, 17) >= 675);
  assert.ok(backoff(new Error('its own'), 9) >= 192);
  assert.equal(backoff({ status: 503, retryAfter: 20.5 }, 3), 21);
});
