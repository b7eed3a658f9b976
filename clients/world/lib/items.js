// The items of a commit, and their outcomes (docs/protocol.md §11.1).
import { randomBytes } from 'node:crypto';
import { encode } from './cbor.js';
import { FENCE_SPEC } from './fence.js';
import { frame } from './frames.js';
import { MIME_CBOR, PROTOCOL } from './http.js';

/** The payload of each type of event, which is the body of its frame. */
const PAYLOADS = {
  run_created: 'input',
  run_started: 'input',
  run_completed: 'output',
  run_failed: 'error',
  step_created: 'input',
  step_started: 'input',
  step_completed: 'result',
  step_failed: 'error',
  step_retrying: 'error',
  hook_created: 'metadata',
  hook_received: 'payload',
};

/** The names of event data that differ in a posted event. */
const POSTED = {
  token: 'hookToken',
  tokenRetentionUntil: 'hookTokenRetentionUntil',
  isWebhook: 'hookIsWebhook',
  isSystem: 'hookIsSystem',
  force: 'hookForce',
};
const DATES = ['resumeAt', 'retryAfter', 'hookTokenRetentionUntil'];

/** The runtime reads the payloads of these answers. */
const RESOLVED = new Set(['run_created', 'run_started', 'step_started']);

/** How a replay reads a log, from spec version 8: without the inputs of steps, which it computes again. */
export const SKIP_STEP_INPUTS = 'skip-step-inputs';

/** Events without a conflict when they are repeated. The key tells the server that one is a repetition. */
const KEYED = new Set(['step_started', 'step_retrying', 'hook_created', 'hook_received', 'hook_disposed', 'attr_set']);

/** An event to be written. Params are those of the SDK's events.create. */
export function eventItem(data, params = {}) {
  const { eventType, specVersion = 2, correlationId, eventData = {} } = data;
  const meta = {
    eventType,
    specVersion,
    correlationId: correlationId || undefined,
    occurredAt: params.occurredAt ?? new Date(),
    remoteRefBehavior: RESOLVED.has(eventType) ? 'resolve' : 'lazy',
    vercelId: params.requestId,
    computeInstanceId: params.computeInstanceId,
    maxSlot: params.eventCount,
    inBand: params.inBand,
    expectedSeqInBand: params.expectedSeqInBand,
    sinceCursor: params.sinceCursor,
    skipPreload: params.skipPreload,
    eventsRemoteRefBehavior: params.resolveData === SKIP_STEP_INPUTS ? SKIP_STEP_INPUTS : undefined,
    executorSpecVersion: eventType === 'run_started' ? params.executorSpecVersion : undefined,
    resumeId: params.resumeId,
    resumePayloadDigest: params.resumePayloadDigest,
    viaStepDispatch: params.viaStepDispatch,
    replayDivergenceCount: params.replayDivergenceCount,
    writeKey: KEYED.has(eventType) ? randomBytes(13).toString('hex') : undefined,
  };
  let payload;
  for (const [name, value] of Object.entries(eventData)) {
    if (name === PAYLOADS[eventType] && value instanceof Uint8Array) payload = value;
    else if (value !== undefined && value !== null) meta[POSTED[name] ?? name] ??= value;
  }
  for (const name of DATES) if (typeof meta[name] === 'string') meta[name] = new Date(meta[name]);
  return { kind: 'event', type: eventType, correlationId, meta, payload };
}

/** A message to be sent. */
export function messageItem(queueName, payload, { deploymentId, idempotencyKey, delaySeconds, retentionSeconds, specVersion }, defaults) {
  const runId = runOf(payload);
  const cbor = (specVersion ?? defaults.specVersion) >= 3;
  const wrapper = { payload, queueName, deploymentId };
  return {
    kind: 'message',
    runId,
    meta: {
      topic: topicOf(queueName, payload, defaults.specVersion),
      deploymentId: deploymentId ?? defaults.deployment,
      contentType: cbor ? MIME_CBOR : 'application/json',
      runId,
      key: idempotencyKey,
      delay: delaySeconds > 0 ? Math.ceil(delaySeconds) : undefined,
      retention: retentionSeconds,
    },
    payload: cbor ? encode(wrapper) : Buffer.from(JSON.stringify(wrapper)),
  };
}

/** The run that a message wakes, or undefined. */
export function runOf(payload) {
  for (const id of [payload.runId, payload.workflowRunId]) if (typeof id === 'string') return id;
  return undefined;
}

/** The topic of a queue. Runs with a fence and WORKFLOW_SEQUENTIAL_REPLAYS=1 ask for a topic for each run and step. */
function topicOf(queueName, payload, specVersion) {
  let name = queueName;
  if (specVersion >= FENCE_SPEC || process.env.WORKFLOW_SEQUENTIAL_REPLAYS === '1') {
    const ids = payload.__healthCheck ? [payload.correlationId] : [payload.runId, payload.stepId];
    name = [queueName, ...ids.filter((id) => typeof id === 'string')].join('_');
  }
  return name.replace(/[^A-Za-z0-9_-]/g, '-');
}

/** The size of an item in bytes, roughly. */
export function sizeOf(item) {
  return 256 + (item.payload?.length ?? 0);
}

/** Encodes a commit; returns its parts. */
export function encodeCommit({ runId, items, end = {}, repeat }) {
  return [
    ...frame({ world: PROTOCOL, runId, repeat: repeat || undefined }),
    ...items.flatMap((item) => frame(item.meta, item.payload)),
    ...frame({ _end: 1, ...end }),
  ];
}

/** Puts the payload of a frame into its event's data. */
export function eventOf({ meta, body }) {
  const field = PAYLOADS[meta.eventType];
  if (meta.eventData?.writeKey) delete meta.eventData.writeKey;
  if (body.length === 0 || !field) return meta;
  return { ...meta, eventData: { ...meta.eventData, [field]: body } };
}

/**
 * What the runtime would have got for an event that is written later, with the answer to the delivery: the event without
 * a position, and no entity.
 */
export function provisional(runId, { meta, type, correlationId }, eventData) {
  return { event: { runId, eventType: type, correlationId, specVersion: meta.specVersion, eventData, createdAt: meta.occurredAt } };
}
