import { createHook, sleep } from 'workflow';
import { nothing, writeChunks } from './steps';

// Steps do nothing, so a run is pure overhead. Each workflow returns the number of its steps.

export async function one() {
  'use workflow';
  return nothing(0);
}

export async function three() {
  'use workflow';
  return sequential(3);
}

export async function ten() {
  'use workflow';
  return sequential(10);
}

/** Runs 50 steps in parallel. */
export async function wide() {
  'use workflow';
  const done = await Promise.all(Array.from({ length: 50 }, () => nothing(0)));
  return done.reduce((sum, n) => sum + n, 0);
}

/** Ends as soon as it has its payload, so that its end shows when the code continued. */
export async function hook(token: string) {
  'use workflow';
  await createHook({ token });
  return 0;
}

/** Ends right after its sleep. */
export async function nap() {
  'use workflow';
  await sleep('1s');
  return 0;
}

/** Writes chunks with a pause after each. */
export async function stream(chunks: number, pauseMs: number) {
  'use workflow';
  await writeChunks(chunks, pauseMs);
  return 1;
}

async function sequential(steps: number) {
  let n = 0;
  while (n < steps) n = await nothing(n);
  return n;
}
