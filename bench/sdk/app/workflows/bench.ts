import { createHook, sleep } from 'workflow';
import { nothing, writeChunks } from './steps';

// Steps do nothing, so a run is all overhead. Each workflow returns the number of its steps.

export async function one() {
  'use workflow';
  return nothing(0);
}

export async function three() {
  'use workflow';
  return inTurn(3);
}

export async function ten() {
  'use workflow';
  return inTurn(10);
}

/** 50 steps at once. */
export async function wide() {
  'use workflow';
  const done = await Promise.all(Array.from({ length: 50 }, () => nothing(0)));
  return done.reduce((sum, n) => sum + n, 0);
}

/** Ends as soon as it has its payload, so that its end tells when the code went on. */
export async function hook(token: string) {
  'use workflow';
  await createHook({ token });
  return 0;
}

/** Ends as soon as it is awake. */
export async function nap() {
  'use workflow';
  await sleep('1s');
  return 0;
}

/** Writes so many chunks with a pause after each. */
export async function stream(chunks: number, pauseMs: number) {
  'use workflow';
  await writeChunks(chunks, pauseMs);
  return 1;
}

async function inTurn(steps: number) {
  let n = 0;
  while (n < steps) n = await nothing(n);
  return n;
}
