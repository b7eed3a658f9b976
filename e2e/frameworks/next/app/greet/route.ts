import { start } from 'workflow/api';
import { greet } from '../../workflows/greet';

export async function POST(request: Request) {
  const run = await start(greet, [await request.text()]);
  return Response.json({ runId: run.runId, value: await run.returnValue });
}
