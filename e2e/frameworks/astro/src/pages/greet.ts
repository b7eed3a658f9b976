import type { APIRoute } from 'astro';
import { start } from 'workflow/api';
import { greet } from '../workflows/greet';

export const prerender = false;

export const POST: APIRoute = async ({ request }) => {
  const { name } = await request.json();
  const run = await start(greet, [name]);
  return Response.json({ runId: run.runId, value: await run.returnValue });
};
