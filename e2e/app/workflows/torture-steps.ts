import { getStepMetadata, getWorkflowMetadata, getWritable, RetryableError } from 'workflow';
import { getRun } from 'workflow/api';

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

// Every execution of a step has its own mark, which it records and, if it succeeds, returns. So a step's result in the
// log identifies the execution that produced it.
function record(name: string) {
  const { stepId, attempt } = getStepMetadata();
  const mark = `${name}#${Math.random().toString(36).slice(2)}`;
  (globalThis as any).recordEffect({ runId: getWorkflowMetadata().workflowRunId, step: name, stepId, attempt, mark });
  return mark;
}

// Every start of a step counts as an attempt, even if the step did not fail but its process died. A plan must not run
// out of attempts because of many faults.
const manyRetries = 1000;

export async function works(name: string, ms: number) {
  'use step';
  const mark = record(name);
  await pause(ms);
  return mark;
}
works.maxRetries = manyRetries;

export async function fails(name: string, times: number) {
  'use step';
  const mark = record(name);
  const { attempt } = getStepMetadata();
  if (attempt <= times) throw new RetryableError(`not yet: attempt ${attempt}`, { retryAfter: '1s' });
  return mark;
}
fails.maxRetries = manyRetries;

export async function announce(token: string) {
  'use step';
  return record(`${token}.announce`);
}
announce.maxRetries = manyRetries;

// The 4.x line reports a step's completion before its writes have reached the server, and does not retry failed writes.
// To be sure, the step reads its stream to the end. Chunks of a died attempt remain in the stream.
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
emit.maxRetries = manyRetries;

// Limits the time of the work, because a write whose answer was lost may hang forever.
async function within(ms: number, work: () => Promise<void>) {
  let timer: NodeJS.Timeout;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms`)), ms);
  });
  await Promise.race([work(), late]).finally(() => clearTimeout(timer));
}
