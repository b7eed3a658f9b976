import { start } from 'workflow/api';
import { greet } from '../../workflows/greet';

export async function POST(request: Request) {
  const { name } = await request.json();
  const run = await start(greet, [name]);
  return Response.json({ runId: run.runId, value: await run.returnValue });
}
