// Runs of spec version 9 on the own client, and whether the server serves them. A scripted server takes the place of the
// real one.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { decode, encode } from './lib/cbor.js';
import { Commits } from './lib/commits.js';
import { withFence } from './lib/fence.js';
import { frame, readFrames, readList } from './lib/frames.js';
import { Http } from './lib/http.js';
import { eventItem, messageItem } from './lib/items.js';
import { Logs } from './lib/logs.js';
import { createQueue } from './lib/queue.js';
import { inOrder, orchestrates } from './lib/replays.js';
import { createLog, createStorage } from './lib/storage.js';

class WorkflowWorldError extends Error {
  constructor(message, options = {}) {
    super(message);
    Object.assign(this, options);
  }
}
class EntityConflictError extends WorkflowWorldError {}
class InBandSupersededError extends WorkflowWorldError {
  constructor(message, counters) {
    super(message, { ...counters, status: 412, ofSdk: true });
    this.name = 'InBandSupersededError';
  }
}
const ERRORS = { WorkflowWorldError, EntityConflictError, InBandSupersededError };

const WORLD = { 'content-type': 'application/cbor', 'stepwell-world': '1', 'stepwell-spec': '9' };
const cbor = (value, headers = WORLD) => (res) => res.writeHead(200, headers).end(encode(value));
const results = (...list) => cbor({ results: list });
const lost = (res) => res.destroy();
const SUPERSEDED = { error: 'in-band-superseded', message: 'another orchestrator writes', seq: 7, seqInBand: 5 };
const SUPERSEDED_ERROR = { name: 'InBandSupersededError', message: SUPERSEDED.message, status: 412, seq: 7, seqInBand: 5 };
const RUN = 'wrun_01K8FENCE00000000000000000';
const MESSAGE = {
  'ce-vqsmessageid': 'msg_1', 'ce-vqsqueuename': 't', 'ce-vqsreceipthandle': 'rh', 'ce-vqsdeliverycount': '3',
};

/** A World of a version, on a server that answers requests in turn. */
async function serve(t, { specVersion = 9, errors = ERRORS }, ...answers) {
  const requests = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    requests.push({ url: req.url, body: Buffer.concat(chunks) });
    answers.shift()(res);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const http = new Http({ base: `http://127.0.0.1:${server.address().port}/sdk`, errors, userAgent: 'test' });
  t.after(() => {
    http.close();
    server.closeAllConnections();
    server.close();
  });
  const commits = new Commits(http);
  const log = createLog({ http, logs: new Logs() });
  const queue = createQueue({ http, commits, log, deployment: 'd', specVersion });
  return { http, commits, requests, ...queue, ...createStorage({ http, commits, log, errors, specVersion }), specVersion };
}

/** Hands a message to a handler, and returns the frames of the answer. */
async function deliver({ createQueueHandler }, payload, handler) {
  const body = JSON.stringify({ queueName: '__wkf_workflow_w', payload });
  const answer = await createQueueHandler('', handler)(new Request('http://app/', { method: 'POST', body, headers: MESSAGE }));
  return readList(new Uint8Array(await answer.arrayBuffer()));
}

const created = { eventType: 'step_created', specVersion: 9, correlationId: 's', eventData: { stepName: 'f', inline: false, creatorMessageId: 'msg_1' } };
const fence = { inBand: true, expectedSeqInBand: 0, eventCount: 4 };

test('writes begin when the server has said that it fences them, and it is asked once', async (t) => {
  const world = await serve(t, {}, results(), results({ status: 200 }), results({ status: 201, messageId: 'm' }), results({ status: 200 }));
  const fenced = withFence(world, world.commits);
  assert.equal(fenced.capabilities.inBandFence, true);
  await Promise.all([fenced.events.create(RUN, created), fenced.queue('__wkf_workflow_w', { other: 1 })]);
  await fenced.events.create(RUN, created);
  const kinds = world.requests.map(({ body }) => readFrames(body).slice(1, -1).map(({ meta }) => meta.eventType ?? meta.topic));
  assert.deepEqual(kinds[0], []);
  assert.deepEqual(kinds.flat().sort(), ['__wkf_workflow_w', 'step_created', 'step_created']);
});

test('the creation of a run still takes its first message along', async (t) => {
  const world = await serve(t, {}, results(), results({ status: 200 }, { status: 201, messageId: 'm' }));
  const fenced = withFence(world, world.commits);
  await Promise.all([fenced.events.create(RUN, { eventType: 'run_created' }), fenced.queue('__wkf_workflow_w', { runId: RUN })]);
  assert.equal(world.requests.length, 2);
});

for (const [name, headers] of [
  ['that serves it only with a setting', { ...WORLD, 'stepwell-spec': '8' }],
  ['of before', { 'content-type': 'application/cbor', 'stepwell-world': '1' }],
]) {
  test(`a server ${name} gets no write, until it says otherwise`, async (t) => {
    const no = cbor({ results: [] }, headers);
    const world = await serve(t, {}, no, no, results(), results({ status: 200 }));
    const { events, queue } = withFence(world, world.commits);
    const wanted = /spec version 9, .* fences .*npm i workflow@~5\.2\), or set STEPWELL_SDK_SPEC_9=true on the server/;
    await assert.rejects(events.create(RUN, { eventType: 'run_created' }), wanted);
    await assert.rejects(queue('__wkf_workflow_w', { runId: RUN }), wanted);
    assert.equal(world.requests.length, 2);
    await events.create(RUN, created);
  });
}

test('the fence goes with an event, and what the answer says of it comes back', async (t) => {
  const answer = { event: { eventId: 'evnt_6' }, allocated: 1, events: [], cursor: null, hasMore: false, reportIncomplete: true };
  const world = await serve(t, {}, results({ status: 200, ...answer }));
  assert.deepEqual(await world.events.create(RUN, created, fence), answer);
  const { inBand, expectedSeqInBand, maxSlot, inline, creatorMessageId } = readFrames(world.requests[0].body)[1].meta;
  assert.deepEqual([inBand, expectedSeqInBand, maxSlot, inline, creatorMessageId], [true, 0, 4, false, 'msg_1']);
  const start = eventItem({ eventType: 'step_started', eventData: { attempt: 2, startReason: 'retry' } }, { inBand: false });
  assert.deepEqual([start.meta.attempt, start.meta.startReason, start.meta.inBand], [2, 'retry', false]);
});

test('a batch has the fence in each event, and its report beside the results', async (t) => {
  const answer = { results: [{ status: 200 }], allocated: 1, events: [], cursor: null, hasMore: false };
  const refused = (res) => res.writeHead(412).end(JSON.stringify({ code: SUPERSEDED.error, ...SUPERSEDED }));
  const world = await serve(t, {}, cbor(answer), refused);
  assert.deepEqual(await world.events.createBatch(RUN, [{ event: created }, { event: created }], fence), answer);
  const [{ url, body }] = world.requests;
  assert.equal(url, `/sdk/v5/runs/${RUN}/events/batch`);
  const sent = readFrames(body).map(({ meta }) => [meta.inBand, meta.expectedSeqInBand, meta.maxSlot]);
  assert.deepEqual(sent, [[true, 0, 4], [true, 0, 4]]);
  await assert.rejects(world.events.createBatch(RUN, [{ event: created }], fence), SUPERSEDED_ERROR);
});

test('a superseded write is the error of the SDK, or one of its name', async (t) => {
  const refused = () => results({ status: 412, ...SUPERSEDED });
  const world = await serve(t, {}, refused());
  await assert.rejects(world.events.create(RUN, created, fence), { ...SUPERSEDED_ERROR, ofSdk: true });
  const { InBandSupersededError: _, ...older } = ERRORS;
  const other = await serve(t, { errors: older }, refused());
  await assert.rejects(other.events.create(RUN, created, fence), { ...SUPERSEDED_ERROR, code: 'in-band-superseded' });
});

test('after a lost answer, a conflict of an in-band event is with another one', async (t) => {
  const conflict = () => results({ status: 409, error: 'conflict', message: 'exists' });
  const world = await serve(t, {}, lost, conflict(), lost, conflict());
  await assert.rejects(world.events.create(RUN, created, fence), EntityConflictError);
  assert.equal((await world.events.create(RUN, created, { inBand: false })).status, undefined);
});

for (const [specVersion, wanted] of [[8, 0], [9, 1]]) {
  test(`version ${specVersion}: an event ${wanted ? 'is written before the runtime goes on' : 'may wait for the answer'}`, async (t) => {
    const world = await serve(t, { specVersion }, results({ status: 200, event: { eventId: 'evnt_6' }, allocated: 1 }));
    let answer;
    const { frames } = await deliver(world, { runId: RUN }, async () => {
      answer = await world.events.create(RUN, created, fence);
    });
    assert.equal(world.requests.length, wanted);
    assert.equal(frames.length, wanted ? 1 : 2);
    assert.equal(answer.allocated, wanted || undefined);
  });
}

test('a superseded write in a delivery leaves what was sent before it', async (t) => {
  const world = await serve(t, {}, results({ status: 201, messageId: 'm' }, { status: 412, ...SUPERSEDED }));
  const { frames, end } = await deliver(world, { runId: RUN }, async () => {
    await world.queue('__wkf_workflow_w', { runId: RUN, stepId: 's' }, { retentionSeconds: 604_800 });
    await assert.rejects(world.events.create(RUN, created, fence), SUPERSEDED_ERROR);
    return { timeoutSeconds: 4.2 };
  });
  assert.deepEqual([frames.length, end], [1, { _end: 1, retryAfter: 5, postponed: true }]);
  const [, { meta }] = readFrames(world.requests[0].body);
  assert.deepEqual([meta.topic, meta.retention], [`__wkf_workflow_w_${RUN}_s`, 604_800]);
});

test('before version 9, a handler that asks for later gets another message', async (t) => {
  const world = await serve(t, { specVersion: 8 });
  const { frames, end } = await deliver(world, { runId: RUN }, async () => ({ timeoutSeconds: 4.2 }));
  assert.deepEqual([frames[1].meta.delay, end], [5, { _end: 1, ack: true }]);
});

test('the handler knows which delivery of which message it has', async (t) => {
  const world = await serve(t, {});
  await deliver(world, { runId: RUN }, async (_, { messageId, deliveryCount, attempt }) => {
    assert.deepEqual([messageId, deliveryCount, attempt], ['msg_1', 3, 3]);
  });
});

test('a message that ends waits early goes to the orchestrator as it is', async (t) => {
  const world = await serve(t, {}, results({ status: 201, messageId: 'm' }));
  const message = { runId: RUN, completeWaits: ['wait_1', 'wait_2'] };
  await world.queue('__wkf_workflow_w', message);
  const [, { meta, body }] = readFrames(world.requests[0].body);
  assert.deepEqual([meta.topic, meta.key, decode(body).payload], [`__wkf_workflow_w_${RUN}`, undefined, message]);
  const got = [];
  await Promise.all([message, { runId: RUN }, message].map((each) => deliver(world, each, async (payload) => got.push(payload))));
  assert.deepEqual(got, [message, { runId: RUN }, message]); // none stands for another
});

test('a list is read anew, with the counters of its run', async (t) => {
  const snapshot = { seq: 2, seqInBand: 1 };
  const page = (end) => (res) => res.writeHead(200).end(Buffer.concat(frame({ _end: 1, hasMore: false, ...end })));
  const world = await serve(t, {}, page({ snapshot }), page({}), page({ snapshot }));
  const query = { runId: RUN, pagination: { sortOrder: 'asc' }, resolveData: 'skip-step-inputs' };
  await deliver(world, { runId: RUN }, async () => {
    assert.deepEqual((await world.events.list(query)).snapshot, snapshot);
    assert.ok(!('snapshot' in (await world.events.list(query)))); // of a run without a fence
  });
  await world.events.list({ ...query, pagination: { limit: 1 } });
  assert.ok(world.requests.every(({ url }) => url.startsWith(`/sdk/v5/runs/${RUN}/events?`)));
});

test('the topics of a run with a fence are its own, and those of its steps theirs', () => {
  const topicOf = (payload, specVersion) => messageItem('__wkf_workflow_w', payload, {}, { specVersion }).meta.topic;
  assert.equal(topicOf({ runId: RUN }, 9), `__wkf_workflow_w_${RUN}`);
  assert.equal(topicOf({ runId: RUN, stepId: 's' }, 9), `__wkf_workflow_w_${RUN}_s`);
  assert.equal(topicOf({ runId: RUN }, 8), '__wkf_workflow_w');
});

test('the deliveries of an orchestrator have turns, also after one that failed; none stands for another', async () => {
  let underWay = 0;
  const order = [];
  const work = (name) => async () => {
    assert.equal(++underWay, 1);
    order.push(name);
    await new Promise((resolve) => setImmediate(resolve));
    underWay--;
    if (name === 1) throw new Error('failed');
    return name;
  };
  const all = await Promise.allSettled([0, 1, 2, 3].map((name) => inOrder(RUN, work(name))));
  assert.deepEqual(all.map(({ value }) => value), [0, undefined, 2, 3]);
  assert.deepEqual(order, [0, 1, 2, 3]);
  const other = inOrder(RUN, () => new Promise(() => {}));
  assert.equal(await inOrder('wrun_other', async () => 'at once'), 'at once');
  assert.ok(other);
  const [wake, step] = [{ runId: RUN }, { runId: RUN, stepId: 's' }];
  assert.deepEqual([orchestrates(wake, 9), orchestrates(step, 9), orchestrates(wake, 8)], [true, false, false]);
});
