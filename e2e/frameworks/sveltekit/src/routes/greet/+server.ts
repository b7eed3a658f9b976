import { json } from '@sveltejs/kit';
import { start } from 'workflow/api';
import { greet } from '../../workflows/greet';

export async function POST({ request }) {
  const { name } = await request.json();
  const run = await start(greet, [name]);
  return json({ runId: run.runId, value: await run.returnValue });
}
