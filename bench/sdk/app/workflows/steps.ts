import { getWritable } from 'workflow';

export async function nothing(n: number) {
  'use step';
  return n + 1;
}

/** Each chunk contains the time of its write, by the clock of this process, which is also the reader's. */
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
