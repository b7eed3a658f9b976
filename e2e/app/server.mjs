// Hosts the workflows of this folder the way any Node server would, and lets a test drive them over
// HTTP (README.md lists the calls). The World comes from the environment alone.
import { appendFileSync, existsSync, fstatSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const V1 = '/.well-known/workflow/v1/';
// Where the bundle is that workflow build made, when it is not beside this file.
const BUILD = new URL(`${process.env.BUILD_DIR ?? '.'}${V1}`, import.meta.url);

// The SDK reads PORT while it loads (for webhook URLs, and the local world for its deliveries). So the
// socket comes first, which also makes PORT=0 work, and the SDK after it. Nothing is announced before
// both are there, and who calls sooner waits.
let open;
const opened = new Promise((resolve) => (open = resolve));
const server = createServer((req, res) => void serve(req, res));
await new Promise((ready) => server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', ready));
process.env.PORT = String(server.address().port);

const effects = openEffects(process.env.EFFECTS_FILE);
globalThis.recordEffect = effects.add;

// The bundle goes first: 5.0.0-beta.35 has the World compiled in there and nowhere else, and the first SDK
// to be loaded is the one that the others ask for it.
const [flow, step, webhook] = [await loadRoute('flow'), await loadRoute('step'), await loadRoute('webhook')];
const { getRun, resumeHook, start } = await import('workflow/api');
const { getWorld } = await import('workflow/runtime');
const world = await (globalThis[Symbol.for('@workflow/world//getWorldFn')] ?? getWorld)();
await world.start?.();

const manifest = JSON.parse(readFileSync(new URL('manifest.json', BUILD), 'utf8'));
const workflows = Object.assign({}, ...Object.values(manifest.workflows));
const routes = listRoutes();

for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, stop);
exitWithParent();
open();
console.log(`listening ${process.env.PORT}`);

// The 5.x line has no route for steps: flow runs them. What it writes as step.mjs is a part of flow.
async function loadRoute(name) {
  const file = [`${name}.js`, `${name}.mjs`].map((file) => new URL(file, BUILD)).find((file) => existsSync(file));
  return file && (await import(file));
}

function listRoutes() {
  const get = (path, handler) => ['GET', path, handler];
  const post = (path, handler) => ['POST', path, handler];
  const all = (path, handler) => ['*', path, handler];
  return [
    all(`${V1}flow`, (_, request) => flow.POST(request)),
    ...(step?.POST ? [all(`${V1}step`, (_, request) => step.POST(request))] : []),
    all(`${V1}webhook/:token`, (_, request) => (webhook[request.method] ?? webhook.POST)(request)),
    get(`${V1}manifest.json`, () => Response.json(manifest)),

    post('/start', startRun),
    get('/runs/:id/result', awaitResult),
    get('/runs/:id/value', async ({ id }) => Response.json({ value: await getRun(id).returnValue, at: new Date() })),
    get('/runs/:id/status', async ({ id }) => Response.json({ status: await getRun(id).status })),
    get('/runs/:id/hooks', listHooks),
    get('/runs/:id/stream', readStream),
    post('/runs/:id/cancel', async ({ id }) => {
      await getRun(id).cancel();
      return Response.json({});
    }),
    post('/hooks/resume', async (_, request) => {
      const { token, payload } = await request.json();
      const { runId } = await resumeHook(token, payload);
      return Response.json({ runId });
    }),
    post('/world', async (_, request) => {
      const { object, method, args } = await request.json();
      return Response.json((await world[object][method](...args)) ?? null);
    }),
    get('/effects', (_, request) => Response.json(effects.list(query(request).get('key')))),
  ];
}

async function startRun(_, request) {
  const { workflow, args = [], options } = await request.json();
  if (!workflows[workflow]) return problem(404, new Error(`no workflow "${workflow}"`));
  const { runId } = await start(workflows[workflow], args, options);
  return Response.json({ runId });
}

// Looks at the run itself first, because awaiting returnValue cannot be given up: it would go on
// asking the server once a second after the test has turned away.
async function awaitResult({ id }, request) {
  const deadline = Date.now() + Number(query(request).get('timeoutMs') ?? 0);
  for (;;) {
    const { status } = await world.runs.get(id, { resolveData: 'none' });
    if (status !== 'pending' && status !== 'running') break;
    if (Date.now() >= deadline) return Response.json({ status: 'pending' });
    await new Promise((done) => setTimeout(done, 50));
  }
  try {
    return Response.json({ status: 'completed', value: await getRun(id).returnValue });
  } catch (err) {
    if (err.name === 'WorkflowRunCancelledError') return Response.json({ status: 'cancelled' });
    if (err.name !== 'WorkflowRunFailedError') throw err;
    const { message, code } = err.cause;
    return Response.json({ status: 'failed', error: { name: err.name, message, code: err.errorCode ?? code } });
  }
}

async function listHooks({ id }) {
  const { data } = await world.hooks.list({ runId: id });
  return Response.json(data.map(({ token, hookId, isWebhook }) => ({ token, hookId, isWebhook })));
}

// One JSON document a line, each sent when it is there.
function readStream({ id }, request) {
  const search = query(request);
  const options = { namespace: search.get('namespace') ?? undefined, startIndex: Number(search.get('startIndex') ?? 0) };
  const encoder = new TextEncoder();
  const lines = new TransformStream({
    transform: (chunk, out) => out.enqueue(encoder.encode(JSON.stringify(chunk) + '\n')),
  });
  const body = getRun(id).getReadable(options).pipeThrough(lines);
  return new Response(body, { headers: { 'content-type': 'application/x-ndjson' } });
}

// With a file the record outlives the process, which is what a restart test needs.
function openEffects(file) {
  const memory = [];
  const read = () =>
    existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)) : [];
  return {
    add(effect) {
      const entry = { ...effect, at: new Date().toISOString(), pid: process.pid };
      if (file) appendFileSync(file, JSON.stringify(entry) + '\n');
      else memory.push(entry);
    },
    list(runId) {
      const entries = (file ? read() : memory).filter((entry) => !runId || entry.runId === runId);
      const counts = {};
      for (const { step } of entries) counts[step] = (counts[step] ?? 0) + 1;
      return { counts, entries };
    },
  };
}

async function serve(req, res) {
  let response;
  try {
    await opened;
    response = await route(toRequest(req));
  } catch (err) {
    response = problem(/NotFound/.test(err.name) ? 404 : 500, err);
  }
  res.writeHead(response.status, Object.fromEntries(response.headers));
  res.flushHeaders();
  if (!response.body) return res.end();
  // A reader that goes away half-way is its own affair.
  await pipeline(Readable.fromWeb(response.body), res).catch(() => res.destroy());
}

async function route(request) {
  const { pathname } = new URL(request.url);
  for (const [method, path, handler] of routes) {
    if (method !== '*' && method !== request.method) continue;
    const match = pathname.match(new RegExp(`^${path.replace(/:(\w+)/g, '(?<$1>[^/]+)')}$`));
    if (match) return handler(decodeAll(match.groups), request);
  }
  return problem(404, new Error(`no ${request.method} ${pathname}`));
}

function toRequest(req) {
  const hasBody = req.method !== 'GET' && req.method !== 'HEAD';
  return new Request(`http://127.0.0.1:${process.env.PORT}${req.url}`, {
    method: req.method,
    headers: Object.entries(req.headers).map(([name, value]) => [name, String(value)]),
    body: hasBody ? Readable.toWeb(req) : undefined,
    duplex: 'half',
  });
}

function decodeAll(groups = {}) {
  return Object.fromEntries(Object.entries(groups).map(([name, value]) => [name, decodeURIComponent(value)]));
}

function query(request) {
  return new URL(request.url).searchParams;
}

function problem(status, { name, message }) {
  return Response.json({ error: { name, message } }, { status });
}

// A test that dies without a word must not leave its app behind. Only a pipe counts: on a terminal
// or /dev/null the end of input says nothing about the parent.
function exitWithParent() {
  const input = fstatSync(0);
  if (!input.isFIFO() && !input.isSocket()) return;
  process.stdin.resume().on('end', stop).on('error', stop);
}

// Requests in hand get a moment to finish.
function stop() {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  setTimeout(() => process.exit(0), 2000).unref();
}
