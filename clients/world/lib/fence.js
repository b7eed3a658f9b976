// Runs of spec version 9, whose writers are fenced by the server: docs/protocol.md §12.
import { refuseServer } from './sdk.js';

/** The version from which the SDK needs a World that fences the writers of a run. */
export const FENCE_SPEC = 9;

/**
 * The World with what the SDK needs from spec version 9. Servers serve that with a setting only, so the first write asks
 * whether this one does, and until then none is sent. Reads are refused by the server itself.
 */
export function withFence(world, commits) {
  let asked;
  const admitted = () =>
    (asked ??= requireFence(commits, world.specVersion).catch((err) => {
      asked = undefined; // it may be there, or set, the next time
      throw err;
    }));
  const guard = (of, name) => of[name] && { [name]: async (...args) => (await admitted(), of[name](...args)) };
  return {
    ...world,
    ...guard(world, 'queue'),
    ...guard(world, 'queueBatch'),
    events: { ...world.events, ...guard(world.events, 'create'), ...guard(world.events, 'createBatch') },
    capabilities: { ...world.capabilities, inBandFence: true },
  };
}

async function requireFence(commits, specVersion) {
  const newest = await commits.newestSpec();
  if (!(newest >= specVersion)) throw refuseServer(specVersion);
}

/** The SDK's error for a write of an orchestrator that another one has superseded. */
export function superseded(errors, message, { seq, seqInBand }) {
  const { InBandSupersededError, WorkflowWorldError } = errors;
  if (InBandSupersededError) return new InBandSupersededError(message, { seq, seqInBand });
  const err = new WorkflowWorldError(message, { status: 412, code: 'in-band-superseded' });
  return Object.assign(err, { name: 'InBandSupersededError', seq, seqInBand });
}
