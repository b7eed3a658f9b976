// The registration of the app's address with the server, whose place a scripted one takes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { servesApp } from './lib/registration.js';

const APP = 'http://127.0.0.1:3000';

/** Registers twice, as the SDK creates two Worlds, and lives until its input ends. */
const REGISTER = `
  const { register } = await import(${JSON.stringify(new URL('lib/registration.js', import.meta.url))});
  const settings = { base: process.env.BASE, key: 'sk_1', deployment: 'shop' };
  register(settings);
  register(settings);
  process.stdin.resume();`;

const ERRORS = `
  export class WorkflowWorldError extends Error {
    constructor(message, options = {}) { super(message, options); Object.assign(this, options); }
  }`;

/** Starts a server that answers requests in turn, and keeps them. */
async function serve(t, ...answers) {
  const requests = [];
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const chunk of req) body += chunk;
    requests.push(`${req.method} ${req.url} ${req.headers.authorization} ${body}`.trim());
    const [status, value = {}] = answers[requests.length - 1] ?? [200];
    res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    server.emit('answered');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const received = async (n) => {
    while (requests.length < n) await once(server, 'answered');
  };
  return { base: `http://127.0.0.1:${server.address().port}/sdk`, requests, received };
}

/** Starts a process that registers. */
function start(t, base, env = {}, args = []) {
  const app = mkdtempSync(join(tmpdir(), 'stepwell-world-'));
  const home = join(app, 'node_modules/@workflow/errors');
  mkdirSync(home, { recursive: true });
  writeFileSync(join(home, 'package.json'), '{"type": "module", "exports": "./index.js"}');
  writeFileSync(join(home, 'index.js'), ERRORS);
  writeFileSync(join(app, 'main.mjs'), REGISTER);
  const child = spawn(process.execPath, ['main.mjs', ...args], {
    cwd: app, env: { PATH: process.env.PATH, BASE: base, STEPWELL_APP_URL: APP, ...env },
  });
  t.after(() => {
    child.kill();
    rmSync(app, { recursive: true, force: true });
  });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text));
  return {
    async says(pattern) {
      while (!pattern.test(stderr)) await once(child.stderr, 'data');
    },
    /** Ends the process and returns what it wrote to stderr. */
    async end() {
      child.stdin.end();
      const [code] = await once(child, 'close');
      assert.equal(code, 0, stderr);
      return stderr;
    },
  };
}

const PUT = `PUT /v1/deployments/shop Bearer sk_1 {"url":"${APP}"}`;
const GET = 'GET /v1/deployments/shop Bearer sk_1';

test('two Worlds register the app once', async (t) => {
  const server = await serve(t);
  const app = start(t, server.base);
  await server.received(1);
  assert.equal(await app.end(), '');
  assert.deepEqual(server.requests, [PUT]);
});

test('a server that is away is tried again, and said to be away once', async (t) => {
  const server = await serve(t, [503, { error: { message: 'no database' } }], [429], [200]);
  const app = start(t, server.base);
  await server.received(3);
  assert.equal((await app.end()).match(/keeps trying: no database/g)?.length, 1);
  assert.deepEqual(server.requests, [PUT, PUT, PUT]);
});

test('a process can end while the server is away', async (t) => {
  const app = start(t, 'http://127.0.0.1:9/sdk');
  await app.says(/cannot register deployment shop at http:\/\/127.0.0.1:3000 yet, and keeps trying/);
  await app.end();
});

test('a key that may not register is enough for an app that is registered', async (t) => {
  const server = await serve(t, [403], [200, { id: 'shop', url: APP }]);
  const app = start(t, server.base);
  await server.received(2);
  assert.equal(await app.end(), '');
  assert.deepEqual(server.requests, [PUT, GET]);
});

for (const [name, answers, remedy] of [
  ['the key may not register', [[403], [200, { url: 'http://elsewhere.test' }]],
    /role admin: stepwell deployments add shop http:\/\/127.0.0.1:3000/],
  ['the key may not register, and nothing is registered', [[403], [404]], /stepwell deployments add shop/],
  ['the key is wrong', [[401]], /Set STEPWELL_API_KEY/],
  ['the address is not allowed', [[400, { error: { message: 'the address is not allowed' } }]],
    /the address is not allowed. Correct STEPWELL_APP_URL/],
]) {
  test(`a refusal says what to do: ${name}`, async (t) => {
    const server = await serve(t, ...answers);
    const app = start(t, server.base);
    await app.says(remedy);
    await app.end();
    assert.equal(server.requests.length, answers.length);
  });
}

for (const [name, env, args] of [
  ['without an address', { STEPWELL_APP_URL: '' }, []],
  ['from a build of Next.js', { NEXT_PHASE: 'phase-production-build' }, []],
  ['from the prerendering of SvelteKit', { SVELTEKIT_FORK: 'true' }, []],
  ['from another build', {}, ['build']],
]) {
  test(`nothing is registered ${name}`, async (t) => {
    const server = await serve(t);
    assert.equal(await start(t, server.base, env, args).end(), '');
    assert.deepEqual(server.requests, []);
  });
}

for (const [serves, program] of [
  [false, '/app/node_modules/.bin/workflow'],
  [false, '/app/node_modules/.bin/wf'],
  [false, '/app/node_modules/workflow/bin/run.js'],
  [false, '/app/node_modules/@workflow/cli/bin/run.js'],
  [false, 'C:\\app\\node_modules\\workflow\\bin\\run.js'],
  [true, '/app/node_modules/.bin/next'],
  [true, '/home/workflow/server.js'],
  [true, undefined],
]) {
  test(`${program} ${serves ? 'serves the app' : 'is the command line'}`, () => {
    assert.equal(servesApp({ argv: ['node', program], env: {} }), serves);
  });
}
