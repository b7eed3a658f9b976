import { createHash } from 'node:crypto';
import {
  FatalError,
  getStepMetadata,
  getWorkflowMetadata,
  getWritable,
  type RequestWithResponse,
  RetryableError,
} from 'workflow';

// Every step records its execution under its run's ID, so that tests can compare the event log with the real
// executions. server.mjs stores the records.
export function record(step: string) {
  const { stepId, attempt } = getStepMetadata();
  (globalThis as any).recordEffect({ runId: getWorkflowMetadata().workflowRunId, step, stepId, attempt });
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

export async function add(a: number, b: number) {
  'use step';
  record('add');
  return a + b;
}

export async function retriesTwice() {
  'use step';
  record('retriesTwice');
  const { attempt } = getStepMetadata();
  if (attempt < 3) throw new RetryableError(`not yet: attempt ${attempt}`, { retryAfter: '1s' });
  return attempt;
}

export async function failsFatally() {
  'use step';
  record('failsFatally');
  throw new FatalError('no use trying again');
}

export async function alwaysFails() {
  'use step';
  record('alwaysFails');
  throw new Error('broken as ever');
}
alwaysFails.maxRetries = 1;

export async function takesTime(ms: number) {
  'use step';
  record('takesTime');
  await pause(ms);
  record('takesTime:end');
  return ms;
}

export async function tick(n: number) {
  'use step';
  record('tick');
  return n + 1;
}

export async function answer(request: RequestWithResponse) {
  'use step';
  record('answer');
  const body = await request.text();
  await request.respondWith(
    new Response(`manual: ${body}`, { status: 201, headers: { 'x-answer': 'manual' } }),
  );
  return body;
}

// Write and close in the same step: the SDK's 4.x line flushes a step's writes after it has reported the step's
// completion, so a close in a later step could overtake them.
export async function writeChunks(count: number, waitMs: number, namespace?: string) {
  'use step';
  record('writeChunks');
  const writable = getWritable(namespace ? { namespace } : undefined);
  const writer = writable.getWriter();
  for (let i = 0; i < count; i++) {
    await writer.write({ chunk: i });
    await pause(waitMs);
  }
  writer.releaseLock();
  await writable.close();
  return count;
}

// Returns pseudo-random content, so that compression does not hide its size. It is the same for every attempt.
function pattern(size: number) {
  const data = new Uint8Array(size);
  let x = 1;
  for (let i = 0; i < size; i++) {
    x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    data[i] = x >>> 24;
  }
  return data;
}

function toText(data: Uint8Array) {
  const alphabet = 'abcdefghijklmnopqrstuvwxyz012345';
  return Array.from(data, (byte) => alphabet[byte & 31]).join('');
}

export async function makePayload(bytes: number, kind: 'string' | 'bytes') {
  'use step';
  record('makePayload');
  const data = pattern(bytes);
  return kind === 'bytes' ? data : toText(data);
}

export async function measure(payload: string | Uint8Array) {
  'use step';
  record('measure');
  return { length: payload.length, sha256: createHash('sha256').update(payload).digest('hex') };
}
