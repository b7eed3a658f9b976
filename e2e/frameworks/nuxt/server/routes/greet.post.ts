import { start } from 'workflow/api';
import { greet } from '../workflows/greet';

export default defineEventHandler(async (event) => {
  const { name } = await readBody(event);
  const run = await start(greet, [name]);
  return { runId: run.runId, value: await run.returnValue };
});
