// Hosts the workflows of this folder like any Node server, and lets tests control them over HTTP (README.md lists
// the calls). The World is configured only by the environment.
import { appendFileSync, existsSync, fstatSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

const V1 = '/.well-known/workflow/v1/';
// The output of workflow build. BUILD_DIR is set if it is not beside this file.
const BUILD = new URL(`${process.env.BUILD_DIR ?? '.'}${V1}`, import.meta.url);

// The SDK reads PORT while it loads (for webhook URLs, and in the local world for deliveries). So the server listens
// before the SDK is loaded, which also supports PORT=0. Earlier requests wait until everything is ready.
let open;
const opened = new Promise((resolve) => (open = resolve));
const server = createServer((req, res) => void serve(req, res));
await new Promise((ready) => server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', ready));
process.env.PORT = String(server.address().port);

const effects = openEffects(process.env.EFFECTS_FILE);
globalThis.recordEffect = effects.add;

// Load the bundle first: with 5.0.0-beta.35 only the bundle contains the compiled-in World, and all copies of the SDK
// get the World from the copy that was loaded first.
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

// The 5.x line has no route for steps, because flow runs them. Its step.mjs is a part of flow.
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

// Polls the run before it awaits returnValue, which cannot be cancelled: it would continue to poll the server once a
// second after the test has given up.
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

// Sends one JSON document per line, each as soon as it arrives.
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

// With a file, the recorded effects survive a restart of the process.
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
  // Ignore readers that disconnect early.
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

// Exits when the parent dies and its end of the standard input pipe closes. On a terminal or /dev/null, the end of
// input says nothing about the parent.
function exitWithParent() {
  const input = fstatSync(0);
  if (!input.isFIFO() && !input.isSocket()) return;
  process.stdin.resume().on('end', stop).on('error', stop);
}

// Requests in flight get two seconds to finish.
function stop() {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  setTimeout(() => process.exit(0), 2000).unref();
}
