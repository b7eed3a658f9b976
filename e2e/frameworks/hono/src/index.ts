import { Hono } from 'hono';
import { start } from 'workflow/api';
import { greet } from '../workflows/greet.js';

const app = new Hono();

app.post('/greet', async (c) => {
  const { name } = await c.req.json();
  const run = await start(greet, [name]);
  return c.json({ runId: run.runId, value: await run.returnValue });
});

export default app;
