// A plain Node server around the workflow. It serves the orders API and the two routes that the SDK needs.
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { getRun, resumeHook, start } from 'workflow/api';
import { getWorld } from 'workflow/runtime';
import flow from './.well-known/workflow/v1/flow.js'; // written by `npm run build`
import step from './.well-known/workflow/v1/step.js';

process.env.PORT ??= '3000'; // the SDK reads it too
const home = `http://127.0.0.1:${process.env.PORT}`;

const routes = {
  'POST /.well-known/workflow/v1/flow': flow.POST,
  'POST /.well-known/workflow/v1/step': step.POST,

  async 'POST /orders'(_, query) {
    const order = {
      id: query.get('order') ?? Math.random().toString(36).slice(2, 8),
      item: query.get('item') ?? 'teapot',
      amount: Number(query.get('amount') ?? 25),
    };
    const { runId } = await start({ workflowId: 'workflow//./workflows/order//placeOrder' }, [order]);
    console.log(`order ${order.id} is run ${runId}`);
    return Response.json({
      order: order.id,
      run: runId,
      look: `curl '${home}/orders?run=${runId}'`,
      approve: `curl -X POST '${home}/approve?order=${order.id}'`,
    });
  },

  async 'GET /orders'(_, query) {
    const run = getRun(query.get('run'));
    const status = await run.status;
    return Response.json({ status, result: status === 'completed' ? await run.returnValue : undefined });
  },

  async 'POST /approve'(_, query) {
    const approval = { approved: query.get('approved') !== 'false', by: query.get('by') ?? 'you' };
    const { runId } = await resumeHook(`approve:${query.get('order')}`, approval);
    return Response.json({ run: runId, ...approval });
  },
};

async function answer(req) {
  const url = new URL(req.url, home);
  const route = routes[`${req.method} ${url.pathname}`];
  if (!route) return Response.json({ error: 'not here' }, { status: 404 });
  const body = req.method === 'POST' ? Readable.toWeb(req) : undefined;
  const request = new Request(url, { method: req.method, headers: req.headers, body, duplex: 'half' });
  return route(request, url.searchParams);
}

function explain(err) {
  return Response.json({ error: err.message }, { status: err.name.includes('NotFound') ? 404 : 500 });
}

const server = createServer(async (req, res) => {
  const response = await answer(req).catch(explain);
  res.writeHead(response.status, Object.fromEntries(response.headers));
  res.end(Buffer.from(await response.arrayBuffer()));
});

server.listen(Number(process.env.PORT), '127.0.0.1', async () => {
  const world = await getWorld();
  await world.start?.();
  console.log(`listening ${process.env.PORT}`);
});

process.on('SIGTERM', () => process.exit(0));
