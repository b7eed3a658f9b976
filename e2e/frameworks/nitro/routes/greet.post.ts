import { start } from 'workflow/api';
import { defineHandler } from 'nitro/h3';
import { greet } from '../workflows/greet';

export default defineHandler(async ({ req }) => {
  const { name } = (await req.json()) as { name: string };
  const run = await start(greet, [name]);
  return { runId: run.runId, value: await run.returnValue };
});
