import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decode } from './lib/cbor.js';
import { readFrames } from './lib/frames.js';
import { encodeCommit, eventItem, eventOf, messageItem } from './lib/items.js';

const DEFAULTS = { deployment: 'shop', specVersion: 7 };

test('event data becomes metadata, under the names of a posted event, and the payload the body', () => {
  const resumeAt = '2026-01-02T03:04:05.000Z';
  const { meta, payload } = eventItem(
    { eventType: 'hook_created', specVersion: 7, correlationId: 'hook_1',
      eventData: { token: 't', isWebhook: false, metadata: new Uint8Array([1]), resumeAt, none: undefined, nothing: null } },
    { eventCount: 4, requestId: 'req', sinceCursor: 'eid:x' },
  );
  assert.deepEqual(payload, new Uint8Array([1]));
  const { occurredAt, writeKey, ...rest } = meta;
  assert.ok(occurredAt instanceof Date);
  assert.match(writeKey, /^[0-9a-f]{26}$/);
  assert.deepEqual(Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined)), {
    eventType: 'hook_created', specVersion: 7, correlationId: 'hook_1', remoteRefBehavior: 'lazy', vercelId: 'req',
    maxSlot: 4, sinceCursor: 'eid:x', hookToken: 't', hookIsWebhook: false, resumeAt: new Date(resumeAt),
  });
});

test('only events that cannot conflict with themselves have a key', () => {
  const keyed = (eventType) => eventItem({ eventType }).meta.writeKey !== undefined;
  assert.deepEqual(
    ['step_started', 'hook_received', 'step_created', 'step_completed', 'run_created', 'run_completed'].map(keyed),
    [true, true, false, false, false, false],
  );
  assert.notEqual(eventItem({ eventType: 'step_started' }).meta.writeKey, eventItem({ eventType: 'step_started' }).meta.writeKey);
});

test("the 4.x line's errors are metadata, not a payload", () => {
  const { meta, payload } = eventItem({ eventType: 'run_failed', eventData: { error: { message: 'm' }, errorCode: 'USER_ERROR' } });
  assert.equal(payload, undefined);
  assert.deepEqual([meta.error, meta.errorCode], [{ message: 'm' }, 'USER_ERROR']);
});

test('an event of a frame has its payload in its data, and no key', () => {
  const meta = { eventType: 'step_completed', eventData: { stepName: 's', writeKey: 'k' } };
  assert.deepEqual(eventOf({ meta, body: new Uint8Array([1]) }).eventData, { stepName: 's', result: new Uint8Array([1]) });
  assert.deepEqual(eventOf({ meta: { eventType: 'wait_created' }, body: new Uint8Array(0) }), { eventType: 'wait_created' });
});

test('a message names its topic, run, key and delay', () => {
  const options = { idempotencyKey: 'k', delaySeconds: 1.2 };
  const item = messageItem('__wkf_step_step//./a.ts//b', { workflowRunId: 'wrun_1', stepId: 'step_1' }, options, DEFAULTS);
  assert.deepEqual(item.meta, {
    topic: '__wkf_step_step----a-ts--b', deploymentId: 'shop', contentType: 'application/cbor', runId: 'wrun_1', key: 'k', delay: 2, retention: undefined,
  });
  assert.deepEqual(decode(item.payload), {
    payload: { workflowRunId: 'wrun_1', stepId: 'step_1' }, queueName: '__wkf_step_step//./a.ts//b',
  });
});

test('old runs and health checks have JSON messages', () => {
  const item = messageItem('__wkf_workflow_health_check', { __healthCheck: true }, { specVersion: 1, deploymentId: 'other' }, DEFAULTS);
  assert.equal(item.meta.contentType, 'application/json');
  assert.equal(item.meta.deploymentId, 'other');
  assert.equal(JSON.parse(Buffer.from(item.payload)).payload.__healthCheck, true);
});

test('WORKFLOW_SEQUENTIAL_REPLAYS gives each run and step its topic', (t) => {
  process.env.WORKFLOW_SEQUENTIAL_REPLAYS = '1';
  t.after(() => delete process.env.WORKFLOW_SEQUENTIAL_REPLAYS);
  const topic = (payload) => messageItem('__wkf_workflow_w', payload, {}, DEFAULTS).meta.topic;
  assert.equal(topic({ runId: 'wrun_1' }), '__wkf_workflow_w_wrun_1');
  assert.equal(topic({ runId: 'wrun_1', stepId: 'step_1' }), '__wkf_workflow_w_wrun_1_step_1');
});

test('a commit is a head, items and an end', () => {
  const items = [eventItem({ eventType: 'step_created', correlationId: 'step_1' })];
  const [head, event, end] = readFrames(Buffer.concat(encodeCommit({ runId: 'wrun_1', items, repeat: true, end: { ack: true } })));
  assert.deepEqual(head.meta, { world: 1, runId: 'wrun_1', repeat: true });
  assert.equal(event.meta.eventType, 'step_created');
  assert.deepEqual(end.meta, { _end: 1, ack: true });
});
