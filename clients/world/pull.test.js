// Deliveries that the app fetches. Scripted servers take the slots of Stepwell and of the app.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { decode } from './lib/cbor.js';
import { frame, readList } from './lib/frames.js';
import { MIME_WORLD } from './lib/http.js';
import { pullMode } from './lib/pull.js';

const URL_OF = (name) => JSON.stringify(new URL(name, import.meta.url));

/** An app that fetches its deliveries. It answers them with the status of the environment, after a while. */
const APP = `
  import { createServer } from 'node:http';
  const { pull } = await import(${URL_OF('lib/pull.js')});
  const { PULL_TOKEN } = await import(${URL_OF('lib/http.js')});
  const settings = { base: process.env.BASE, key: 'sk_1', deployment: 'shop' };
  if (process.env.SIGNAL_EXIT) {
    process[process.env.SIGNAL_EXIT] = globalThis[Symbol.for(process.env.SIGNAL_EXIT)] = { count: 1 };
    process.on('SIGTERM', function exit() {
      if (process.listenerCount('SIGTERM') === 1) process.off('SIGTERM', exit).kill(process.pid, 'SIGTERM');
    });
  }
  pull(settings);
  pull(settings);
  if (process.env.SILENT) createServer(() => {}).listen(0, '127.0.0.1').unref();
  if (process.env.NO_SERVER) setTimeout(() => {}, 600);
  else createServer(async function (req, res) {
    let body = '';
    for await (const part of req) body += part;
    if (req.url.endsWith('?__health')) {
      // Astro takes a request without a type for a form of another site.
      if (req.headers['content-type'] !== 'application/json') return res.writeHead(403).end();
      if (process.env.CLOSE) this.close();
      return res.end('{"healthy":true}');
    }
    console.log([req.url, req.headers['ce-vqsmessageid'], req.headers['stepwell-pulled'] === PULL_TOKEN, body].join(' '));
    await new Promise((done) => setTimeout(done, Number(process.env.WORK ?? 0)));
    res.writeHead(Number(process.env.STATUS ?? 200)).end('no');
  }).listen(0, '127.0.0.1');
  if (!process.env.NO_SERVER) process.stdin.resume().on('end', () => process.exit(0));`;

const ERRORS = `
  export class WorkflowWorldError extends Error {
    constructor(message, options = {}) { super(message, options); Object.assign(this, options); }
  }
  export class EntityConflictError extends WorkflowWorldError { name = 'EntityConflictError'; }`;

const delivery = (id, path = '/.well-known/workflow/v1/flow') =>
  frame({ path, headers: { 'Ce-Vqsmessageid': id, 'Ce-Vqsreceipthandle': `rh_${id}`, 'Ce-Vqsqueuename': 't', 'Ce-Vqsdeliverycount': '1' } },
    Buffer.from(`body of ${id}`));
const list = (...frames) => Buffer.concat([...frames.flat(), ...frame({ _end: 1 })]);
const refusal = (status, code) => [status, Buffer.from(JSON.stringify({ code, message: `${code}: set STEPWELL_PULL=1` }))];

/** A Stepwell server that answers polls in turn, and then holds them. It keeps the polls and the commits. */
async function serve(t, ...answers) {
  const polls = [];
  const commits = [];
  const server = createServer(async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    const body = Buffer.concat(parts);
    const world = { 'stepwell-world': '1' };
    if (req.url === '/sdk/world/v1/commit') {
      commits.push(readList(body).end);
      server.emit('arrived');
      return res.writeHead(200, { ...world, 'content-type': 'application/json' }).end('{"results":[]}');
    }
    assert.equal(`${req.method} ${req.url} ${req.headers.authorization}`, 'POST /sdk/world/v1/pull Bearer sk_1');
    const n = polls.push(decode(new Uint8Array(body)));
    req.on('close', () => server.emit('arrived'));
    server.emit('arrived');
    const [status, answer] = answers[n - 1] ?? [];
    if (status === 0) return res.destroy();
    if (status) res.writeHead(status, { ...world, 'content-type': MIME_WORLD }).end(answer);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const until = async (done) => {
    while (!done()) await once(server, 'arrived');
  };
  return { base: `http://127.0.0.1:${server.address().port}/sdk`, polls, commits, until };
}

function start(t, base, env = {}) {
  const app = mkdtempSync(join(tmpdir(), 'stepwell-world-'));
  const home = join(app, 'node_modules/@workflow/errors');
  mkdirSync(home, { recursive: true });
  writeFileSync(join(home, 'package.json'), '{"type": "module", "exports": "./index.js"}');
  writeFileSync(join(home, 'index.js'), ERRORS);
  writeFileSync(join(app, 'main.mjs'), APP);
  const child = spawn(process.execPath, ['main.mjs'], { cwd: app, env: { PATH: process.env.PATH, BASE: base, STEPWELL_PULL: '1', ...env } });
  t.after(() => {
    child.kill('SIGKILL');
    rmSync(app, { recursive: true, force: true });
  });
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (text) => (output[name] += text));
  return {
    child,
    output,
    async says(name, pattern) {
      while (!pattern.test(output[name])) await once(child[name], 'data');
    },
    async end() {
      child.stdin.end();
      const [code] = await once(child, 'close');
      assert.equal(code, 0, output.stderr);
      return output.stderr;
    },
  };
}

for (const [env, want] of [
  [{}, { mode: 'offered' }],
  [{ STEPWELL_APP_URL: 'http://app.test' }, {}],
  [{ STEPWELL_PULL: '1', STEPWELL_APP_URL: 'http://app.test' }, { mode: 'asked' }],
  [{ STEPWELL_PULL: '0' }, {}],
  [{ STEPWELL_PULL: 'http://127.0.0.1:3000/base/' }, { mode: 'asked', app: 'http://127.0.0.1:3000/base' }],
]) {
  test(`whether an app with ${JSON.stringify(env)} fetches its deliveries`, () => assert.deepEqual(pullMode(env), want));
}

test('another value of STEPWELL_PULL is an error', () => {
  assert.throws(() => pullMode({ STEPWELL_PULL: 'yes' }), /set it to 1, to 0, or to the base URL/);
});

test('each delivery is handed to the app, whose handler reports the outcome', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'), delivery('m2', '/.well-known/workflow/v1/step'))]);
  const app = start(t, server.base);
  await app.says('stdout', /m1(.|\n)*m2|m2(.|\n)*m1/);
  await server.until(() => server.polls.length >= 2);
  assert.deepEqual(app.output.stdout.trim().split('\n').sort(), [
    '/.well-known/workflow/v1/flow m1 true body of m1', '/.well-known/workflow/v1/step m2 true body of m2',
  ]);
  const [{ process, ...first }] = server.polls;
  assert.deepEqual(first, { world: 1, deployment: 'shop', asked: true, slots: 100, waitMs: 25000, receipts: [] });
  assert.equal(server.polls[1].process, process);
  assert.equal(await app.end(), '');
  assert.deepEqual(server.commits, []);
});

test('what is under way takes slots, and its leases are renewed', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'))]);
  const app = start(t, server.base, { WORK: '60000' });
  await server.until(() => server.polls.length === 2);
  const { slots, waitMs, receipts } = server.polls[1];
  assert.deepEqual({ slots, waitMs, receipts }, { slots: 99, waitMs: 10_000, receipts: ['rh_m1'] });
  await app.end();
});

test('a delivery that the app refuses has failed', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'))]);
  const app = start(t, server.base, { STATUS: '500' });
  await server.until(() => server.commits.length === 1);
  assert.deepEqual(server.commits, [
    { _end: 1, retryAfter: 1, reason: 'its own server answered 500: no', topic: 't', receipt: 'rh_m1' },
  ]);
  await app.end();
});

test('a server that is away is asked again, and said to be away once', async (t) => {
  const server = await serve(t, [0], [503, Buffer.from('{}')], [200, list(delivery('m1'))]);
  const app = start(t, server.base);
  await app.says('stdout', /m1/);
  assert.equal((await app.end()).match(/cannot fetch deliveries for deployment shop yet/g)?.length, 1);
});

test('an answer that is cut is none', async (t) => {
  const whole = list(delivery('m1'));
  const server = await serve(t, [200, whole.subarray(0, whole.length - 1)], [200, list(delivery('m2'))]);
  const app = start(t, server.base);
  await app.says('stdout', /m2/);
  assert.doesNotMatch(app.output.stdout, /m1/);
  await app.end();
});

test('a frame of another kind is named, and the others are delivered', async (t) => {
  const server = await serve(t, [200, list(frame({ later: 1 }), delivery('m1'))]);
  const app = start(t, server.base);
  await app.says('stdout', /m1/);
  assert.match(await app.end(), /unknown_frame/);
});

for (const [name, answer, env, says] of [
  ['a server without polls is named to an app that was told to ask', refusal(404, 'not_found'), {}, /does not speak version 1.*Update the server/s],
  ['a registration at a URL is named to an app that was told to ask', refusal(409, 'deployment_has_url'), {}, /deployment_has_url/],
  ['an app that was not told to ask is told how', refusal(403, 'pull_unasked'), { STEPWELL_PULL: '' }, /no deliveries for deployment shop: .*STEPWELL_PULL=1/],
]) {
  test(name, async (t) => {
    const server = await serve(t, answer);
    const app = start(t, server.base, env);
    await app.says('stderr', says);
    await app.end();
    assert.equal(server.polls.length, 1);
  });
}

for (const [answer, says] of [
  [refusal(404, 'not_found'), /does not speak version 1/],
  [refusal(409, 'deployment_has_url'), /deployment_has_url/],
  [refusal(403, 'forbidden'), /forbidden/],
]) {
  test(`an app that was not told to ask says that it goes on after ${answer[0]}`, async (t) => {
    const server = await serve(t, answer);
    const app = start(t, server.base, { STEPWELL_PULL: '' });
    await app.says('stderr', /keeps trying/);
    assert.match(await app.end(), says);
  });
}

test('a refusal is said once, also after other failures', async (t) => {
  const server = await serve(t, [0], refusal(403, 'forbidden'));
  const app = start(t, server.base);
  await app.says('stderr', /forbidden/);
  assert.equal((await app.end()).match(/forbidden: /g).length, 1);
});

test('a server of the app that never answers does not hide the one that does', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'))]);
  const app = start(t, server.base, { SILENT: '1' });
  await app.says('stdout', /m1/);
  assert.equal(await app.end(), '');
});

test('a delivery that finds no server of the app has not reached it', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'))]);
  const app = start(t, server.base, { CLOSE: '1' });
  await server.until(() => server.commits.length === 1);
  const [{ reason, ...end }] = server.commits;
  assert.match(reason, /its own server did not answer: .*ECONNREFUSED/);
  assert.deepEqual(end, { _end: 1, retryAfter: 1, unreached: true, topic: 't', receipt: 'rh_m1' });
  await app.end();
});

test('a process without a server asks for nothing, and may end', async (t) => {
  const server = await serve(t);
  const app = start(t, server.base, { NO_SERVER: '1' });
  assert.equal(await app.end(), '');
  assert.equal(server.polls.length, 0);
});

test('a signal ends the polls, and the process after what is under way', async (t) => {
  const server = await serve(t, [200, list(delivery('m1'))]);
  const app = start(t, server.base, { WORK: '500', STATUS: '500' });
  await app.says('stdout', /m1/);
  app.child.kill('SIGTERM');
  const [, signal] = await once(app.child, 'close');
  assert.equal(signal, 'SIGTERM');
  assert.equal(server.commits.length, 1); // it has waited for the outcome
  assert.ok(server.polls.filter(({ slots }) => slots > 0).length <= 2);
});

// Each of the two waits for the other one to go.
for (const emitter of ['__signal_exit_emitter__', 'signal-exit emitter']) {
  test(`a signal ends the process beside a listener of signal-exit: ${emitter}`, async (t) => {
    const server = await serve(t, [200, list(delivery('m1'))]);
    const app = start(t, server.base, { SIGNAL_EXIT: emitter });
    await app.says('stdout', /m1/);
    app.child.kill('SIGTERM');
    const [, signal] = await once(app.child, 'close');
    assert.equal(signal, 'SIGTERM');
  });
}

test('a signal does not end the renewals of leases, also with more deliveries than slots', async (t) => {
  const ids = Array.from({ length: 101 }, (_, i) => `m${i}`);
  const server = await serve(t, [200, list(...ids.map((each) => delivery(each)))]);
  const app = start(t, server.base, { WORK: '60000' });
  await app.says('stdout', /m100 /);
  assert.equal(server.polls.length, 1); // there is no slot
  app.child.kill('SIGTERM');
  await server.until(() => server.polls.length === 2);
  const { slots, waitMs, receipts } = server.polls[1];
  assert.deepEqual({ slots, waitMs, receipts: receipts.length }, { slots: 0, waitMs: 0, receipts: 101 });
});
