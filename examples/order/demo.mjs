// Demonstrates Stepwell: starts the server and this app, places an order, prints the run's event log as it
// grows, approves the order, and keeps running. `make run` builds everything and starts this script.
//
// With DEMO_ONCE=1, or without a terminal, it uses free ports and a temporary database, and exits after the
// order, with code 0 if the order completed.
import { spawn } from 'node:child_process';
import { once as happens } from 'node:events';
import { rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const REPOSITORY = join(HERE, '../..');
const ONCE = Boolean(process.env.DEMO_ONCE) || !process.stdin.isTTY;
const KEY = process.env.STEPWELL_API_KEY;

// For root, the private Postgres runs as another user, which must be able to reach its data directory. The
// checkout may be below /root, so the data goes elsewhere.
const DATA = join(
  process.getuid() === 0 ? '/var/lib/stepwell' : join(REPOSITORY, '.data'),
  ONCE ? `once-${process.pid}` : 'demo',
);

class Problem extends Error {}

// Running programs in the order in which they are stopped: the server first, so that it can finish or release
// its deliveries while the app still answers.
const programs = [];

/** Starts a program in its own process group, so that Ctrl-C in the terminal reaches only this script. */
function start(name, command, args, { env, onLine = (line) => say(`${name.padStart(8)} | ${line}`) }) {
  const child = spawn(command, args, { cwd: HERE, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  child.name = name;
  child.ended = happens(child, 'close');
  createInterface({ input: child.stdout }).on('line', onLine);
  createInterface({ input: child.stderr }).on('line', (line) => say(`${name.padStart(8)} | ${line}`));
  child.ended.then(
    ([code, signal]) => stop(1, `the ${name} has ended (${signal ?? code})`),
    (err) => stop(1, `cannot start the ${name}: ${err.message}`),
  );
  programs.push(child);
}

let stopping = false;

/** Stops all programs and exits. Later calls do nothing. */
async function stop(code, why) {
  if (stopping) return;
  stopping = true;
  say(`\n${why ?? 'Stopping.'}`);
  for (const program of programs) {
    program.kill();
    await program.ended.catch(() => {});
  }
  if (ONCE) rmSync(DATA, { recursive: true, force: true });
  process.exit(code);
}

/** Returns a free port: the wanted one, or any if the demo runs once. */
async function openPort(wanted, advice) {
  const server = createServer();
  server.listen(ONCE ? 0 : wanted, '127.0.0.1');
  try {
    await happens(server, 'listening');
  } catch (err) {
    throw new Problem(`Port ${wanted} is taken (${err.code}). Stop what runs there, or choose another:\n  ${advice}`);
  }
  const { port } = server.address();
  server.close();
  await happens(server, 'close');
  return port;
}

async function call(method, url, body) {
  const headers = { 'content-type': 'application/json', ...(KEY && { authorization: `Bearer ${KEY}` }) };
  const response = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
  if (!response.ok) throw new Problem(`${method} ${url} answers ${response.status}: ${await response.text()}`);
  return response.json();
}

/** Waits until the URL answers, with the given status if there is one. */
async function answers(url, status) {
  for (;;) {
    const response = await fetch(url).catch(() => undefined);
    if (response && (!status || response.status === status)) return;
    await delay(50);
  }
}

/** Yields the events of a run, and polls for new ones. */
async function* events(server, run) {
  for (let after = 0; ; ) {
    const page = await call('GET', `${server}/v1/runs/${run}/events?after=${after}`);
    yield* page.data;
    after = page.data.at(-1)?.seq ?? after;
    if (!page.hasMore) await delay(100);
  }
}

const clock = (time) => new Date(time).toISOString().slice(11, 23);
const say = (line = '') => console.log(line);
const row = (seq, time, type, id, about) =>
  say([String(seq).padStart(5), time.padEnd(12), type.padEnd(15), id.padEnd(31), about].join('  ').trimEnd());

function show({ seq, type, correlationId = '', createdAt, data }) {
  const name = (data.stepName ?? (correlationId ? '' : data.workflowName))?.split('//').at(-1);
  const until = data.retryAfter ?? data.resumeAt;
  const about = [name, data.token, until && `until ${clock(until)}`].filter(Boolean).join(' ');
  row(seq, clock(createdAt), type, correlationId, about);
}

async function main() {
  const listen = process.env.STEPWELL_LISTEN || '127.0.0.1:8788';
  const port = await openPort(Number(listen.split(':').at(-1)), 'STEPWELL_LISTEN=127.0.0.1:8789 make run');
  const appPort = await openPort(Number(process.env.PORT || 3000), 'PORT=3001 make run');
  const server = `http://127.0.0.1:${port}`;
  const app = `http://127.0.0.1:${appPort}`;

  say('Starting Postgres and the Stepwell server.');
  let psql = '';
  start('server', join(REPOSITORY, 'bin/stepwell'), ['dev'], {
    env: {
      STEPWELL_DATA_DIR: DATA,
      STEPWELL_LOG_LEVEL: 'warn',
      ...process.env,
      STEPWELL_LISTEN: ONCE ? `127.0.0.1:${port}` : listen,
    },
    onLine: (line) => { psql ||= /psql ['"].*['"]/.exec(line)?.[0] ?? ''; },
  });
  await answers(`${server}/readyz`, 200);
  await call('PUT', `${server}/v1/deployments/order`, { url: app });
  say(`Dashboard: ${server}/ui/`);

  say('Starting the app.');
  start('app', process.execPath, ['server.mjs'], {
    env: {
      ...process.env,
      PORT: String(appPort),
      STEPWELL_DEPLOYMENT_ID: 'order',
      STEPWELL_PULL: '0', // it is registered above
      STEPWELL_URL: server,
      WORKFLOW_TARGET_WORLD: '@stepwell/world',
    },
  });
  await answers(app);

  const order = `${app}/orders?item=teapot&amount=25`;
  say(`\nPlacing an order:\n  curl -X POST '${order}'\n`);
  const { run, approve } = await call('POST', order);
  row('seq', 'time (UTC)', 'event', 'of', '');
  let end;
  for await (const event of events(server, run)) {
    show(event);
    if (event.type === 'wait_completed') {
      say(`\nThe order now waits for an approval, for weeks if need be. The demo approves it in three seconds:\n  ${approve}\n`);
      delay(3000).then(() => call('POST', /http[^']*/.exec(approve)[0])).catch(fail);
    }
    if (['run_completed', 'run_failed', 'run_cancelled'].includes(event.type)) {
      end = event.type;
      break;
    }
  }
  const { result } = await call('GET', `${app}/orders?run=${run}`);
  say(`\n${end}: ${JSON.stringify(result)}`);
  if (ONCE) return stop(end === 'run_completed' ? 0 : 1);

  done = true;
  say(`
The dashboard shows the order: ${server}/ui/default/runs/${run}
The server and the app keep running. In another terminal:

  curl -X POST '${app}/orders?item=kettle&amount=40'    # prints how to approve it and how to look at it
  curl -X POST '${app}/orders?item=unicorn'             # fails permanently
  curl '${server}/v1/runs/${run}/events'
${psql && `  ${psql} \\
    -c 'select run_id, seq, type, data from ${env.STEPWELL_SCHEMA || 'stepwell'}.events order by run_id, seq'\n`}
Ctrl-C stops both. The next make run continues orders that are still waiting.`);
}

function fail(err) {
  return stop(1, err instanceof Problem ? err.message : err.stack);
}

let done = false;
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => (stopping ? process.exit(130) : stop(done ? 0 : 130))); // a second signal exits at once
}
process.on('exit', () => programs.forEach((program) => program.kill('SIGKILL'))); // whatever stop has not ended
if (ONCE) setTimeout(() => stop(1, 'the demo did not finish within five minutes'), 300_000).unref();
main().catch(fail);
