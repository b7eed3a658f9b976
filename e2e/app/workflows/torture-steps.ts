import { getStepMetadata, getWorkflowMetadata, getWritable, RetryableError } from 'workflow';
import { getRun } from 'workflow/api';

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

// Every execution of a step has a mark of its own. It is in the record and, if the step succeeds, in its result:
// what the log has as the step's result was then really done, and where.
function record(name: string) {
  const { stepId, attempt } = getStepMetadata();
  const mark = `${name}#${Math.random().toString(36).slice(2)}`;
  (globalThis as any).recordEffect({ runId: getWorkflowMetadata().workflowRunId, step: name, stepId, attempt, mark });
  return mark;
}

// How often a step is tried is counted with every start of it, also when it did not fail: it was lost with its
// process. A plan that meets many faults must not run out of attempts.
const patient = 1000;

export async function works(name: string, ms: number) {
  'use step';
  const mark = record(name);
  await pause(ms);
  return mark;
}
works.maxRetries = patient;

export async function fails(name: string, times: number) {
  'use step';
  const mark = record(name);
  const { attempt } = getStepMetadata();
  if (attempt <= times) throw new RetryableError(`not yet: attempt ${attempt}`, { retryAfter: '1s' });
  return mark;
}
fails.maxRetries = patient;

export async function announce(token: string) {
  'use step';
  return record(`${token}.announce`);
}
announce.maxRetries = patient;

// The 4.x line reports a step done before what it has written is on the server, and does not write it again if
// that fails: a step that wants to be sure reads its stream to the end. An attempt that died has left what it
// wrote in the stream.
export async function emit(name: string, n: number, ms: number) {
  'use step';
  const mark = record(name);
  await within(n * ms + 10_000, async () => {
    const writable = getWritable({ namespace: name });
    const writer = writable.getWriter();
    for (let i = 0; i < n; i++) {
      await writer.write({ mark, i });
      await pause(ms);
    }
    writer.releaseLock();
    await writable.close();
    const written = getRun(getWorkflowMetadata().workflowRunId).getReadable({ namespace: name });
    for await (const _ of written);
  });
  return mark;
}
emit.maxRetries = patient;

// A write whose answer was lost may never be told so.
async function within(ms: number, work: () => Promise<void>) {
  let timer: NodeJS.Timeout;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms`)), ms);
  });
  await Promise.race([work(), late]).finally(() => clearTimeout(timer));
}
