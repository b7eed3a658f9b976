import { start } from 'workflow/api';
import { defineHandler } from 'nitro/h3';
import { greet } from '../workflows/greet';

export default defineHandler(async ({ req }) => {
  const run = await start(greet, [await req.text()]);
  return { runId: run.runId, value: await run.returnValue };
});
