import { greeting, shout } from './steps';

export async function greet(name: string) {
  'use workflow';
  const text = await greeting(name);
  const loud = await shout(text);
  return `${loud} bye`;
}
