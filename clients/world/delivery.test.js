import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Delivery, deliveryOf, readDelivery } from './lib/delivery.js';
import { encode } from './lib/cbor.js';
import { frame, readList } from './lib/frames.js';
import { MIME_WORLD } from './lib/http.js';
import { eventItem } from './lib/items.js';

const RUN = 'wrun_1';
const CE = {
  'ce-vqsmessageid': 'm', 'ce-vqsqueuename': '__wkf_workflow_w', 'ce-vqsreceipthandle': 'rh', 'ce-vqsdeliverycount': '2',
  'ce-vqscreatedat': '2026-10-01T12:00:00.000Z',
};
const event = (type) => eventItem({ eventType: type, correlationId: 'x' });
const types = (frames) => frames.map(({ meta }) => meta.eventType);

/** Commits that are only recorded. Outcomes are those of the next statuses, 200 if there are none. */
function recorder(statuses = []) {
  const sent = [];
  return {
    sent,
    async send(commit) {
      sent.push(commit);
      await null;
      const results = [];
      for (const _ of commit.items) {
        results.push({ status: statuses.shift() ?? 200 });
        if (![200, 409, 410].includes(results.at(-1).status)) break;
      }
      return results;
    },
    accept(result) {
      if (result.status >= 300) throw Object.assign(new Error(`status ${result.status}`), { status: result.status });
      return result;
    },
  };
}

function newDelivery(commits, run) {
  return new Delivery({ message: { id: 'm', topic: 't', receipt: 'rh' }, run }, RUN, commits);
}

async function answerOf(delivery, outcome = { ack: true }, options) {
  return readList(Buffer.concat(await delivery.end(outcome, options)));
}

test('what is held goes with the answer, which acknowledges', async () => {
  const commits = recorder();
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_created'));
  await delivery.hold(event('wait_created'));
  const { frames, end } = await answerOf(delivery);
  assert.deepEqual(frames[0].meta, { world: 1, runId: RUN });
  assert.deepEqual(types(frames.slice(1)), ['step_created', 'wait_created']);
  assert.deepEqual(end, { _end: 1, ack: true });
  assert.deepEqual(commits.sent, []);
});

test('a write takes along what is held, before it', async () => {
  const commits = recorder([200, 409]);
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_created'));
  assert.deepEqual(await delivery.commit([event('hook_created')]), [{ status: 409 }]);
  assert.deepEqual(commits.sent.map(({ items }) => types(items)), [['step_created', 'hook_created']]);
  assert.deepEqual(types((await answerOf(delivery)).frames.slice(1)), []);
});

test('what is held is sent soon if the handler goes on', async () => {
  const commits = recorder();
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_created'));
  await new Promise((resolve) => {
    const send = commits.send;
    commits.send = (commit) => {
      resolve();
      return send(commit);
    };
    setTimeout(resolve, 5000).ref();
  });
  assert.equal(commits.sent.length, 1);
  assert.equal((await answerOf(delivery)).frames.length, 1);
});

for (const status of [409, 410]) {
  test(`a conflict of what was held (${status}) is not a failure`, async () => {
    const delivery = newDelivery(recorder([status]));
    await delivery.hold(event('step_created'));
    await delivery.flush();
    assert.deepEqual((await answerOf(delivery)).end, { _end: 1, ack: true });
  });
}

test('a refused event does not acknowledge the delivery', async () => {
  const delivery = newDelivery(recorder([400]));
  await delivery.hold(event('step_created'));
  await assert.rejects(delivery.commit([event('hook_created')]), { status: 400 });
  await assert.rejects(delivery.end({ ack: true }), { status: 400 });
  assert.deepEqual((await answerOf(delivery, { retryAfter: 1 })).end, { _end: 1, retryAfter: 1 });
});

test('a flush that fails unseen does not acknowledge the delivery', async () => {
  const commits = recorder();
  const lost = new Error('the server is away');
  commits.send = async () => {
    throw lost;
  };
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_completed'));
  await delivery.flush().catch(() => {});
  await assert.rejects(delivery.end({ ack: true }), lost);
});

test('too much for an answer is sent before', async () => {
  const commits = recorder();
  const delivery = newDelivery(commits);
  const large = eventItem({ eventType: 'step_completed', eventData: { result: new Uint8Array(2 * 1024 * 1024) } });
  await delivery.hold(large);
  assert.equal(commits.sent.length, 1);
});

test('of an aborted request, nothing is left to the answer', async () => {
  const commits = recorder();
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_completed'));
  const { frames } = await answerOf(delivery, { ack: true }, { aborted: true });
  const end = { ack: true, topic: 't', receipt: 'rh' };
  assert.deepEqual(commits.sent.map(({ items, end }) => [types(items), end]), [[['step_completed'], end]]);
  assert.equal(frames.length, 1);
});

test('the outcome of a pulled delivery is sent, with the receipt, also if nothing else is', async () => {
  const commits = recorder();
  const acknowledged = newDelivery(commits);
  await acknowledged.hold(event('step_completed'));
  await answerOf(acknowledged, { ack: true }, { pulled: true });
  await answerOf(newDelivery(commits), { retryAfter: 2 }, { pulled: true });
  assert.deepEqual(commits.sent.map(({ items, end }) => [types(items), end]), [
    [['step_completed'], { ack: true, topic: 't', receipt: 'rh' }], [[], { retryAfter: 2, topic: 't', receipt: 'rh' }],
  ]);
});

test('an answer that is lost is sent as a commit, with the receipt', async () => {
  const commits = recorder();
  const delivery = newDelivery(commits);
  await delivery.hold(event('step_completed'));
  await delivery.end({ ack: true });
  await delivery.answerLost();
  const [{ items, end }] = commits.sent;
  assert.deepEqual([types(items), end], [['step_completed'], { ack: true, topic: 't', receipt: 'rh' }]);
});

test('only the handler of a run finds its delivery, until it ends', async () => {
  const delivery = newDelivery(recorder());
  let later;
  await delivery.do(async () => {
    assert.equal(deliveryOf(RUN), delivery);
    assert.equal(deliveryOf('wrun_2'), undefined);
    later = () => new Promise((resolve) => setTimeout(() => resolve(deliveryOf(RUN))));
    later = later();
  });
  assert.equal(deliveryOf(RUN), undefined);
  delivery.ended = true;
  assert.equal(await later, undefined);
});

test('a delivery that stands for another needs the log of both, and has the later run', () => {
  const of = (received, status) => Object.assign(newDelivery(recorder(), status && { status }), { received });
  for (const [own, other, want] of [[4, 7, 7], [7, 4, 7], [4, 0, 0], [0, 4, 0]]) {
    const delivery = of(own, 'running');
    delivery.standFor(of(other, 'completed'));
    assert.deepEqual([delivery.received, delivery.run.status], [want, 'completed']);
    delivery.standFor(of(other));
    assert.equal(delivery.run.status, 'completed');
  }
});

const wrapper = { payload: { runId: RUN }, queueName: '__wkf_workflow_w' };

test('a plain delivery has only the message', () => {
  for (const body of [encode(wrapper), Buffer.from(JSON.stringify(wrapper))]) {
    const read = readDelivery(new Headers({ ...CE, 'content-type': 'application/cbor' }), new Uint8Array(body));
    const createdAt = new Date('2026-10-01T12:00:00.000Z');
    assert.deepEqual(read.message, { id: 'm', topic: '__wkf_workflow_w', receipt: 'rh', attempt: 2, createdAt, wrapper });
    assert.equal(read.run, undefined);
  }
});

test('a delivery with a log has the run and the events; cut anywhere, it is refused', () => {
  const headers = new Headers({ ...CE, 'content-type': MIME_WORLD });
  const whole = new Uint8Array(Buffer.concat([
    ...frame({ world: 1, contentType: 'application/cbor', run: { runId: RUN, status: 'running' }, after: 4 }, encode(wrapper)),
    ...frame({ eventId: 'evnt_00000000000000000000000005', eventType: 'step_completed', eventData: {} }, new Uint8Array([9])),
    ...frame({ _end: 1, hasMore: false, next: 'x' }),
  ]));
  const read = readDelivery(headers, whole);
  assert.deepEqual([read.run.status, read.after, read.more], ['running', 4, false]);
  assert.deepEqual(read.events[0].eventData, { result: new Uint8Array([9]) });
  for (let length = 0; length < whole.length; length++) {
    assert.throws(() => readDelivery(headers, whole.subarray(0, length)), `${length} bytes`);
  }
  const read2 = (...frames) => readDelivery(headers, new Uint8Array(Buffer.concat([...frames.flat(), ...frame({ _end: 1 })])));
  assert.throws(() => read2(frame({ world: 2 })), { code: 'world_version' });
  assert.throws(() => read2(frame({ world: 1 }, encode(wrapper)), frame({ later: 1 })), { code: 'unknown_frame' });
});

test('a request without the headers of a delivery is refused', () => {
  assert.throws(() => readDelivery(new Headers({ 'content-type': 'application/cbor' }), encode(wrapper)), /not a delivery/);
});
