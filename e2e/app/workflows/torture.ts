import { createHook, sleep } from 'workflow';
import { announce, emit, fails, works } from './torture-steps';

/** A part of a plan. The meaning of n and ms depends on the kind. */
type Part = { kind: string; n: number; ms: number; parts: Part[] };

/**
 * Executes the parts of the plan and returns their results. All names contain the plan's ID, so that the test can
 * assign them to the plan.
 */
export async function torture(plan: { id: string; parts: Part[] }) {
  'use workflow';
  return { plan: plan.id, results: await sequence(plan.id, plan.parts) };
}

async function sequence(name: string, parts: Part[]) {
  const results: unknown[] = [];
  for (let i = 0; i < parts.length; i++) results.push(await part(`${name}.${i}`, parts[i]));
  return results;
}

async function part(name: string, { kind, n, ms, parts }: Part): Promise<unknown> {
  switch (kind) {
    case 'steps': {
      const results: string[] = [];
      for (let i = 0; i < n; i++) results.push(await works(`${name}.${i}`, ms));
      return results;
    }
    case 'fan':
      return Promise.all(Array.from({ length: n }, (_, i) => works(`${name}.${i}`, ms)));
    case 'retry':
      return fails(name, n);
    case 'sleep':
      await sleep(ms);
      return 'awake';
    case 'hook':
      return listen(name, n);
    case 'stream':
      return emit(name, n, ms);
    case 'at once':
      return Promise.all(parts.map((each, i) => part(`${name}.${i}`, each)));
    default:
      throw new Error(`no kind ${kind}`);
  }
}

/** Waits for the payloads 0 to n-1, which may arrive in any order and repeatedly. */
async function listen(token: string, n: number) {
  const received = new Set<number>();
  {
    using hook = createHook<{ payload: number }>({ token });
    await announce(token);
    for await (const { payload } of hook) {
      received.add(payload);
      if (received.size === n) break;
    }
  }
  return [...received].sort((a, b) => a - b);
}
