import { createWebhook, sleep } from 'workflow';
import { call, greeting } from './steps';

export async function greet(name: string) {
  'use workflow';
  if (name === 'sleeper') await sleep('1h');
  const text = await greeting(name);
  await sleep('1s');
  const webhook = createWebhook();
  await call(webhook.url, text);
  const request = await webhook;
  const { answer } = await request.json();
  return `${answer} bye`;
}
