import { sleep } from 'workflow';
import { greeting, shout } from './steps';

export async function greet(name: string) {
  'use workflow';
  if (name === 'sleeper') await sleep('1h');
  const text = await greeting(name);
  const loud = await shout(text);
  return `${loud} bye`;
}
