import express from 'express';
import { start } from 'workflow/api';
import { greet } from '../workflows/greet.js';

const app = express();
app.use(express.json());

app.post('/greet', async (req, res) => {
  const run = await start(greet, [req.body.name]);
  res.json({ runId: run.runId, value: await run.returnValue });
});

export default app;
