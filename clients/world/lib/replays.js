// The replays of runs in this process: one at a time for each run.
//
// On the 4.x line, a message that wakes a run makes the SDK replay its whole log, and each end of a step sends one. A
// replay sees everything that is in the log when it begins, so it stands for all wake-ups that came before.

import { FENCE_SPEC } from './fence.js';

// A process may have several copies of this module, if a framework bundles it.
const last = (globalThis[Symbol.for('@stepwell/world//replays/1')] ??= new Map());

/**
 * What a message may have besides its run without asking for a replay of its own. Anything else, such as the input of a
 * run, is for the handler of that very message.
 */
const PLAIN = new Set(['runId', 'traceCarrier', 'requestedAt']);

/** Whether the message only wakes its run, on a line where that is nothing but a replay. */
export function wakesRun(payload, specVersion) {
  return specVersion === 3 && typeof payload.runId === 'string' && !payload.__healthCheck;
}

/** Whether the message is for the orchestrator of a run with a fence: not for one of its steps. */
export function orchestrates(payload, specVersion) {
  return specVersion >= FENCE_SPEC && typeof payload.runId === 'string' && !payload.stepId && !payload.__healthCheck;
}

/**
 * Orchestrates a run when the deliveries before have ended. No delivery stands for another: each message arms again what
 * it has created. Two orchestrators at once would do no harm, but the fence would send one of them away.
 */
export function inOrder(runId, work) {
  const before = last.get(runId)?.ended;
  const own = {};
  last.set(runId, own);
  own.ended = (async () => {
    await before?.catch(() => {}); // its own delivery has failed
    return work();
  })().finally(() => last.get(runId) === own && last.delete(runId));
  return own.ended;
}

/**
 * Replays the run of a delivery when its last replay has ended. Returns what the replay returns, or undefined if one of
 * another delivery has stood for this one: it began after this one had come, with the log of both.
 * @throws what the replay throws, for each delivery that it stands for
 */
export async function inTurn(delivery, replay) {
  const { runId } = delivery;
  const before = last.get(runId);
  const plain = Object.keys(delivery.message.wrapper.payload).every((name) => PLAIN.has(name));
  if (plain && before?.open) {
    before.delivery.standFor(delivery);
    await before.ended;
    return undefined;
  }
  const own = { delivery, open: plain };
  last.set(runId, own);
  own.ended = (async () => {
    await before?.ended.catch(() => {}); // its own deliveries have failed
    own.open = false;
    return replay();
  })().finally(() => last.get(runId) === own && last.delete(runId));
  return own.ended;
}
