// Hosts the workflows of this folder like any Node server, and measures them in the same process. The World is
// configured only by the environment. README.md lists the calls.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const V1 = '/.well-known/workflow/v1/';

// The SDK reads PORT while it loads, so the server listens first. Earlier requests wait until everything is ready.
let open;
const opened = new Promise((resolve) => (open = resolve));
const server = createServer((req, res) => void serve(req, res));
await new Promise((ready) => server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', ready));
process.env.PORT = String(server.address().port);

const { POST: flow } = await import(`.${V1}flow.js`);
const { POST: step } = await import(`.${V1}step.js`);
const { resumeHook, start } = await import('workflow/api');
const { getWorld } = await import('workflow/runtime');
const world = getWorld();
await world.start?.();

const manifest = JSON.parse(readFileSync(new URL(`.${V1}manifest.json`, import.meta.url), 'utf8'));
const workflows = Object.assign({}, ...Object.values(manifest.workflows));
const watched = watchRuns();
const routes = {
  [`${V1}flow`]: flow,
  [`${V1}step`]: step,
  '/measure/runs': (request) => measure(request, timeRun),
  '/measure/hook': (request) => measure(request, timeHook),
  '/measure/sleep': (request) => measure(request, timeSleep),
  '/measure/stream': (request) => measure(request, timeStream),
  '/value': returnValue,
};

for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
open();
console.log(`listening ${process.env.PORT}`);

// Repeats an operation with a number of concurrent workers, and a pause before each one: a number of times, or for a
// window. Returns the latencies in milliseconds; one operation may have several.
async function measure(request, once) {
  const { times, windowMs, inFlight, pauseMs, ...what } = await request.json();
  const latencies = [];
  const began = performance.now();
  let left = times;
  const work = async () => {
    while (windowMs ? performance.now() - began < windowMs : left-- > 0) {
      if (pauseMs > 0) await pause(pauseMs * (1 + Math.random()));
      latencies.push(...(await once({ ...what, pauseMs })));
    }
  };
  await Promise.all(Array.from({ length: inFlight }, work));
  return Response.json({ seconds: (performance.now() - began) / 1000, latencies });
}

// Measures from the call of start until a client of the backend sees the end of the run.
async function timeRun({ workflow }) {
  const began = performance.now();
  const { handle, run } = await begin(workflow);
  await run.ended;
  await seeEnd(handle.runId);
  return [performance.now() - began];
}

// Reads the run from the backend when the World's call with run_completed has returned. On world-postgres the run has
// ended by then, so one read shows it. On Stepwell that event may still be under way, so the read waits for it.
async function seeEnd(runId) {
  const { runs } = world;
  const options = { resolveData: 'none', timeoutMs: 30_000 };
  const { status } = await (runs.waitForTerminalStatus ?? runs.get)(runId, options);
  if (status !== 'completed') throw new Error(`run ${runId} is ${status}`);
}

// Measures from the call of resumeHook to the code after the hook, which ends the run at once.
async function timeHook() {
  const token = randomUUID();
  const { run } = await begin('hook', token);
  await run.waits;
  await pause(50); // until the requests after hook_created are done
  const began = performance.now();
  await resumeHook(token, { n: 1 });
  await run.ended;
  return [run.endingAt - began];
}

// Measures from the scheduled end of the sleep to the code after it, which ends the run at once.
async function timeSleep() {
  const { run } = await begin('nap');
  await run.ended;
  return [performance.timeOrigin + run.endingAt - run.resumeAt];
}

// Measures from writing a chunk to reading it.
async function timeStream({ chunks, pauseMs }) {
  const { handle, run } = await begin('stream', chunks, pauseMs);
  const latencies = [];
  for await (const { at } of handle.getReadable()) latencies.push(performance.now() - at);
  await run.ended;
  return latencies;
}

// Uses the SDK's returnValue, which polls once a second.
async function returnValue(request) {
  const { workflow, args } = await request.json();
  const { handle } = await begin(workflow, ...args);
  return Response.json({ value: await handle.returnValue });
}

async function begin(workflow, ...args) {
  const handle = await start(workflows[workflow], args);
  return { handle, run: watched(handle.runId) };
}

// Both Worlds write each event of a run with a call in this process. Wrapping it shows when code continues and when
// runs end, without polling, and at the same cost for both.
function watchRuns() {
  const runs = new Map();
  const of = (id) => {
    if (!runs.has(id)) runs.set(id, newRun());
    return runs.get(id);
  };
  const create = world.events.create.bind(world.events);
  world.events.create = async (id, event, ...rest) => {
    const at = performance.now();
    const answer = await create(id, event, ...rest);
    switch (event.eventType) {
      case 'hook_created':
        of(id).waiting();
        break;
      case 'wait_created':
        of(id).resumeAt = new Date(event.eventData.resumeAt).getTime();
        break;
      case 'run_completed':
        of(id).end(at);
        break;
      case 'run_failed':
        of(id).fail(new Error(`run ${id} failed: ${JSON.stringify(event.eventData)}`));
    }
    return answer;
  };
  return (id) => {
    const run = of(id);
    void run.ended.catch(() => {}).then(() => runs.delete(id));
    return run;
  };
}

function newRun() {
  const run = {};
  run.waits = new Promise((resolve) => (run.waiting = resolve));
  run.ended = new Promise((resolve, reject) => {
    run.end = (at) => {
      run.endingAt = at;
      resolve();
    };
    run.fail = reject;
  });
  run.ended.catch(() => {}); // there may be no other handler yet
  return run;
}

async function serve(req, res) {
  let response;
  try {
    await opened;
    const route = routes[new URL(req.url, 'http://app').pathname];
    response = route ? await route(await toRequest(req)) : new Response('no such route', { status: 404 });
  } catch (err) {
    response = new Response(err.stack, { status: 500 });
  }
  const body = Buffer.from(await response.arrayBuffer());
  res.writeHead(response.status, Object.fromEntries(response.headers)).end(body);
}

async function toRequest(req) {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const headers = Object.entries(req.headers).map(([name, value]) => [name, String(value)]);
  const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
  return new Request(`http://127.0.0.1:${process.env.PORT}${req.url}`, { method: req.method, headers, body });
}
