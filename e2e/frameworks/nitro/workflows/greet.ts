import { sleep } from 'workflow';

export async function greet(name: string) {
  'use workflow';
  if (name === 'sleeper') await sleep('1h');
  const text = await greeting(name);
  const loud = await shout(text);
  return `${loud} bye`;
}

async function greeting(name: string) {
  'use step';
  return `hello ${name}`;
}

async function shout(text: string) {
  'use step';
  return `${text.toUpperCase()}!`;
}
