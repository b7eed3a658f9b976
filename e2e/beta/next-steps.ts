import { setAttributes } from 'workflow';
import { record } from './steps';

export async function label(key: string, value: string) {
  'use step';
  record('label');
  await setAttributes({ [key]: value });
}

export async function untilAborted(signal: AbortSignal) {
  'use step';
  record('untilAborted');
  await new Promise((done) => signal.addEventListener('abort', done));
  record('untilAborted:aborted');
  return 'aborted';
}

export async function repeat(text: string) {
  'use step';
  record('repeat');
  return text;
}

export async function sizeOf(text: string) {
  'use step';
  record('sizeOf');
  return text.length;
}
