// Workflows that need the SDK's 5.x line. Its builds include this folder besides the workflows of all lines.
import { createHook, setAttributes, sleep } from 'workflow';
import { start } from 'workflow/api';
import { sequential } from './e2e';
import { label, repeat, sizeOf, untilAborted } from './next-steps';

/** Sets attributes from the workflow and from a step, overwrites one and deletes one. */
export async function attributes() {
  'use workflow';
  await setAttributes({ phase: 'begun', passing: 'yes' });
  await label('by-step', 'set');
  await setAttributes({ phase: 'ended', passing: undefined });
}

/** Ends after the first payload, but retains its token for a while. */
export async function hookRetained(token: string, ms: number) {
  'use workflow';
  const hook = createHook({ token, experimental_minRetention: ms });
  return { payload: await hook };
}

/** Aborts a running step after one second. */
export async function aborts() {
  'use workflow';
  const controller = new AbortController();
  const first = await Promise.race([untilAborted(controller.signal), sleep('1s').then(() => 'enough')]);
  controller.abort();
  await sleep('1s');
  return first;
}

/** Starts a child workflow and returns its result. */
export async function parent(n: number) {
  'use workflow';
  const child = await start(sequential, [n]);
  return { child: child.runId, value: await child.returnValue };
}

/** Passes text that compresses well to steps. */
export async function compressible(text: string) {
  'use workflow';
  const same = await repeat(text);
  return { same: same === text, length: await sizeOf(same) };
}
