import { json } from '@sveltejs/kit';
import { start } from 'workflow/api';
import { greet } from '../../workflows/greet';

export async function POST({ request }) {
  const run = await start(greet, [await request.text()]);
  return json({ runId: run.runId, value: await run.returnValue });
}
