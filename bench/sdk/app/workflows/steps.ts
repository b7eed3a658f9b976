import { getWritable } from 'workflow';

export async function nothing(n: number) {
  'use step';
  return n + 1;
}

/** Each chunk says when it was written, by the clock of this process, in which its reader is too. */
export async function writeChunks(chunks: number, pauseMs: number) {
  'use step';
  const writable = getWritable<{ at: number }>();
  const writer = writable.getWriter();
  for (let i = 0; i < chunks; i++) {
    await writer.write({ at: performance.now() });
    await new Promise((done) => setTimeout(done, pauseMs));
  }
  writer.releaseLock();
  await writable.close();
}
