import { createHook, createWebhook, sleep } from 'workflow';
import {
  add,
  alwaysFails,
  answer,
  failsFatally,
  makePayload,
  measure,
  retriesTwice,
  takesTime,
  tick,
  writeChunks,
} from './steps';

export async function sequential(n: number) {
  'use workflow';
  const one = await add(n, 1);
  const two = await add(one, 1);
  return add(two, 1);
}

export async function parallel(n: number) {
  'use workflow';
  return Promise.all([add(n, 1), add(n, 2), add(n, 3)]);
}

/** Runs n steps in parallel; returns 0 + 1 + … + (n-1). */
export async function fanout(n: number) {
  'use workflow';
  const parts = await Promise.all(Array.from({ length: n }, (_, i) => add(i, 0)));
  return parts.reduce((sum, part) => sum + part, 0);
}

export async function retryable() {
  'use workflow';
  return retriesTwice();
}

export async function fatal() {
  'use workflow';
  await failsFatally();
}

export async function exhausted() {
  'use workflow';
  await alwaysFails();
}

export async function sleepShort() {
  'use workflow';
  const before = await tick(0);
  await sleep('1s');
  return tick(before);
}

export async function sleepLong(ms: number) {
  'use workflow';
  await sleep(ms);
  return 'awake';
}

/** Returns the time in milliseconds at the start, and after each of two steps. */
export async function clock() {
  'use workflow';
  const times = [Date.now()];
  for (let n = 0; n < 2; n++) {
    await tick(n);
    times.push(Date.now());
  }
  return times;
}

/** Collects count payloads, disposes the hook, and then continues. */
export async function hookMany(token: string, count: number) {
  'use workflow';
  const payloads: unknown[] = [];
  {
    using hook = createHook({ token });
    for await (const payload of hook) {
      payloads.push(payload);
      if (payloads.length >= count) break;
    }
  }
  // The SDK records the disposal at the next suspension. Without this step, the run would end before that.
  await tick(0);
  return payloads;
}

/** Holds the token until a payload arrives or the run ends. Returns `conflict` if another run holds the token. */
export async function hookHold(token: string) {
  'use workflow';
  try {
    return { payload: await createHook({ token }) };
  } catch (err: any) {
    return { conflict: { name: err.name, message: err.message, runId: err.conflictingRunId } };
  }
}

// The SDK generates webhook tokens. Tests read them from GET /runs/:id/hooks.

export async function webhookDefault() {
  'use workflow';
  const request = await createWebhook();
  return describe(request);
}

export async function webhookStatic() {
  'use workflow';
  const respondWith = new Response('static answer', { status: 207, headers: { 'x-answer': 'static' } });
  const request = await createWebhook({ respondWith });
  return describe(request);
}

export async function webhookManual() {
  'use workflow';
  const request = await createWebhook({ respondWith: 'manual' });
  return { method: request.method, body: await answer(request) };
}

async function describe(request: Request) {
  return { method: request.method, body: await request.text() };
}

export async function stream(count: number, waitMs = 20, namespace?: string) {
  'use workflow';
  return writeChunks(count, waitMs, namespace);
}

/** Loops forever. It holds a hook, so that a cancel has to free a token. */
export async function cancelMe(token: string) {
  'use workflow';
  createHook({ token });
  for (let n = 0; ; ) {
    n = await tick(n);
    await sleep('1s');
  }
}

export async function slowStep(ms: number) {
  'use workflow';
  return takesTime(ms);
}

/** Passes a payload of the given number of bytes (or characters) from one step to the next. */
export async function big(bytes: number, kind: 'string' | 'bytes' = 'string') {
  'use workflow';
  return measure(await makePayload(bytes, kind));
}

/** Uses steps, retries, a sleep and a hook, in an order that leaves time for crashes in between. */
export async function everything(token: string) {
  'use workflow';
  const parts = await Promise.all([add(0, 1), add(0, 2), add(0, 3)]);
  const attempts = await retriesTwice();
  await sleep('1s');
  const payload = await createHook({ token });
  const slow = await takesTime(500);
  return { parts, attempts, payload, slow };
}
