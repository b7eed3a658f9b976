import type { IncomingMessage, ServerResponse } from 'node:http';
import Fastify from 'fastify';
import { start } from 'workflow/api';
import { greet } from '../workflows/greet.js';

const app = Fastify();

app.post<{ Body: { name: string } }>('/greet', async (req) => {
  const run = await start(greet, [req.body.name]);
  return { runId: run.runId, value: await run.returnValue };
});

await app.ready();

export default (req: IncomingMessage, res: ServerResponse) => {
  app.server.emit('request', req, res);
};
