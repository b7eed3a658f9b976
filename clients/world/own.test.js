// The World on the own client. A scripted server takes the place of the real one where a test needs lost or broken
// answers; package e2e runs the client against the real server.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { encode } from './lib/cbor.js';
import { Commits } from './lib/commits.js';
import { Delivery } from './lib/delivery.js';
import { frame, readFrames } from './lib/frames.js';
import { Http } from './lib/http.js';
import { eventItem, messageItem } from './lib/items.js';
import { Logs } from './lib/logs.js';
import { createLog, createStorage } from './lib/storage.js';

const HERE = dirname(fileURLToPath(import.meta.url));
const ENV = { PATH: process.env.PATH, STEPWELL_URL: 'http://stepwell.test:8788/', STEPWELL_DEPLOYMENT_ID: 'shop' };
const CREATE = 'import { createWorld } from "@stepwell/world"; const world = createWorld();';

/** The SDK's error classes, as far as the client uses them. */
const ERRORS = `
  class WorkflowWorldError extends Error {
    constructor(message, options = {}) { super(message, options); Object.assign(this, options); this.name = new.target.name; }
  }
  class HookForceClaimedError extends WorkflowWorldError {
    constructor(token, claimedByRunId, claimedByHookId) { super('claimed'); Object.assign(this, { token, claimedByRunId, claimedByHookId }); }
  }
  ${['EntityConflictError', 'RunExpiredError', 'TooEarlyError', 'ThrottleError', 'WorkflowRunNotFoundError', 'HookNotFoundError']
    .map((name) => `class ${name} extends WorkflowWorldError {}`).join('\n')}
  export { WorkflowWorldError, HookForceClaimedError, EntityConflictError, RunExpiredError, TooEarlyError, ThrottleError, WorkflowRunNotFoundError, HookNotFoundError };`;
const errors = await import(`data:text/javascript,${encodeURIComponent(ERRORS)}`);

function install(app, name, source) {
  const home = join(app, 'node_modules', name);
  mkdirSync(home, { recursive: true });
  writeFileSync(join(home, 'package.json'), JSON.stringify({ name, type: 'module', exports: './index.js' }));
  writeFileSync(join(home, 'index.js'), source);
}

/** Creates an app that links this package, with an SDK of a spec version. */
function makeApp(t, specVersion) {
  const app = mkdtempSync(join(tmpdir(), 'stepwell-world-'));
  t.after(() => rmSync(app, { recursive: true, force: true }));
  mkdirSync(join(app, 'node_modules/@stepwell'), { recursive: true });
  symlinkSync(HERE, join(app, 'node_modules/@stepwell/world'), 'dir');
  install(app, 'workflow', '');
  install(app, '@workflow/core', '');
  install(app, '@workflow/errors', ERRORS);
  install(app, '@workflow/world', `export const SPEC_VERSION_CURRENT = ${specVersion};`);
  return app;
}

function run(app, code, env = {}) {
  const flags = ['--input-type=module', '-e', code];
  return spawnSync(process.execPath, flags, { cwd: app, env: { ...ENV, ...env }, encoding: 'utf8', timeout: 20_000 });
}

function output(app, code, env) {
  const { stdout, stderr, status } = run(app, code, env);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

for (const [specVersion, has, hasNot] of [
  [3, ['writeToStream', 'readFromStream', 'createQueueHandler', 'close'], ['analytics', 'streams', 'getEncryptionKeyForRun']],
  [5, ['streams', 'analytics', 'queueBatch'], ['writeToStream', 'getEncryptionKeyForRun', 'resolveLatestDeploymentId']],
  [7, ['streams', 'analytics', 'capabilities'], ['writeToStream', 'getEncryptionKeyForRun', 'resolveLatestDeploymentId']],
  [8, ['streams', 'analytics', 'capabilities'], ['writeToStream', 'getEncryptionKeyForRun', 'resolveLatestDeploymentId', 'invoke']],
]) {
  test(`has what the SDK of spec version ${specVersion} expects`, (t) => {
    const app = makeApp(t, specVersion);
    const keys = output(app, `${CREATE} console.log(JSON.stringify([world.specVersion, Object.keys(world)]))`);
    assert.equal(keys[0], specVersion);
    for (const name of has) assert.ok(keys[1].includes(name), name);
    for (const name of hasNot) assert.ok(!keys[1].includes(name), name);
  });
}

/** The time of a ULID in milliseconds. */
const timeOf = (id) => [...id.slice(0, 10)].reduce((ms, digit) => ms * 32 + '0123456789ABCDEFGHJKMNPQRSTVWXYZ'.indexOf(digit), 0);

test('a run has its ID by the time of the server, from its first one on', async (t) => {
  const later = new Date(Date.now() + 3_600_000);
  const { base, requests } = await serve(t, (res) => res.writeHead(200, { date: later.toUTCString() }).end());
  const code = `${CREATE} await Promise.all([world.getDeploymentId(), world.getDeploymentId()]);
    console.log(JSON.stringify(world.createRunId({})));`;
  const { execFile } = await import('node:child_process');
  const env = { ...ENV, WORKFLOW_VERCEL_BACKEND_URL: base };
  const stdout = await new Promise((resolve, reject) => {
    execFile(process.execPath, ['--input-type=module', '-e', code], { cwd: makeApp(t, 8), env }, (err, out) => (err ? reject(err) : resolve(out)));
  });
  assert.ok(Math.abs(timeOf(JSON.parse(stdout)) - later) < 60_000);
  assert.deepEqual(requests.map(({ url }) => url), ['/healthz']);
});

test('without a server, a run has its ID by the own clock', (t) => {
  const code = `${CREATE} await world.getDeploymentId(); console.log(JSON.stringify(world.createRunId({})))`;
  assert.ok(Math.abs(timeOf(output(makeApp(t, 8), code)) - Date.now()) < 60_000);
});

for (const [specVersion, more] of [[7, {}], [8, { hookForceClaim: true }], [9, { hookForceClaim: true, inBandFence: true }]]) {
  test(`declares what the server does: version ${specVersion}`, (t) => {
    const code = `${CREATE} console.log(JSON.stringify(world.capabilities))`;
    const declared = { hookRetention: { active: true }, maxConcurrency: true, deploymentAffinity: false };
    assert.deepEqual(output(makeApp(t, specVersion), code), { ...declared, ...more });
  });
}

test('development mode is accepted', (t) => {
  const code = `${CREATE} console.log(JSON.stringify(await world.getDeploymentId()))`;
  assert.equal(output(makeApp(t, 3), code, { NODE_ENV: 'development' }), 'shop');
});

for (const [name, specVersion, env, message] of [
  ['no server', 3, { STEPWELL_URL: '' }, /set STEPWELL_URL/],
  ['no deployment', 3, { STEPWELL_DEPLOYMENT_ID: '' }, /set STEPWELL_DEPLOYMENT_ID/],
  ['an older SDK', 2, {}, /workflow of spec version 2, and .* knows 3 to 8: install a newer one/],
  ['a newer SDK', 10, {}, /spec version 10, .* 3 to 8; .*npm i workflow@~5\.2/],
  ['a wrong signing key', 3, { STEPWELL_SIGNING_KEYS: 'swsk_AAAA' }, /STEPWELL_SIGNING_KEYS is invalid: a signing key is swsk_ and 32 bytes/],
  ['an unknown client', 3, { STEPWELL_CLIENT: 'mine' }, /STEPWELL_CLIENT is "mine": set it to own or official/],
]) {
  test(`refuses to start: ${name}`, (t) => {
    const { status, stderr } = run(makeApp(t, specVersion), CREATE, env);
    assert.equal(status, 1);
    assert.match(stderr, message);
  });
}

/** Starts a server that answers requests in turn, and the client of it. Requests are kept with their bodies. */
async function serve(t, ...answers) {
  const requests = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    requests.push({ method: req.method, url: req.url, headers: req.headers, socket: req.socket, body: Buffer.concat(chunks) });
    answers.shift()(res, req);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const base = `http://127.0.0.1:${server.address().port}/sdk`;
  const http = new Http({ base, key: 'sk_1', errors, userAgent: 'test' });
  t.after(() => {
    http.close();
    server.closeAllConnections();
    server.close();
  });
  return { base, http, commits: new Commits(http), requests };
}

const WORLD = { 'content-type': 'application/cbor', 'stepwell-world': '1' };
const results = (...list) => (res) => res.writeHead(200, WORLD).end(encode({ results: list }));
const lost = (res) => res.destroy();
const problem = (status, code, headers) => (res) =>
  res.writeHead(status, { 'stepwell-world': '1', ...headers }).end(JSON.stringify({ code, message: `a ${code}` }));
const started = () => eventItem({ eventType: 'step_started', correlationId: 'step_1' });
const completed = () => eventItem({ eventType: 'step_completed', correlationId: 'step_1' });

test('a lost answer repeats the commit, with the same key', async (t) => {
  const { commits, requests } = await serve(t, lost, results({ status: 200, step: { attempt: 1 } }));
  assert.deepEqual(await commits.send({ runId: 'r', items: [started()] }), [{ status: 200, step: { attempt: 1 } }]);
  const [first, second] = requests.map(({ body }) => readFrames(body));
  assert.deepEqual([first[0].meta.repeat, second[0].meta.repeat], [undefined, true]);
  assert.equal(first[1].meta.writeKey, second[1].meta.writeKey);
  assert.equal(requests[0].headers.authorization, 'Bearer sk_1');
  assert.equal(requests[0].headers['stepwell-world'], '1');
});

test('an answer that is cut is a lost one', async (t) => {
  const whole = encode({ results: [{ status: 200 }] });
  const cut = (res) => {
    res.writeHead(200, { ...WORLD, 'content-length': whole.length }).write(whole.subarray(0, whole.length - 1));
    setImmediate(() => res.destroy());
  };
  const { commits, requests } = await serve(t, cut, results({ status: 200 }));
  assert.deepEqual(await commits.send({ runId: 'r', items: [completed()] }), [{ status: 200 }]);
  assert.equal(requests.length, 2);
});

test('a conflict of a repeated event is with itself', async (t) => {
  const conflict = { status: 409, error: 'conflict', message: 'exists' };
  const { commits } = await serve(t, lost, results({ ...conflict }), results({ ...conflict }), lost, results({ ...conflict }));
  const [repeated] = await commits.send({ runId: 'r', items: [completed()] });
  assert.equal(repeated.status, 200);
  const [other] = await commits.send({ runId: 'r', items: [completed()] });
  assert.equal(other.status, 409);
  // An event with a key has an outcome of its own: the server found another one.
  const [keyed] = await commits.send({ runId: 'r', items: [started()] });
  assert.equal(keyed.status, 409);
});

test('a server that is away is tried again, a refusal is not', async (t) => {
  const { commits, requests } = await serve(t, problem(503, 'stopping'), results({ status: 200 }), problem(400, 'unknown_frame'));
  await commits.send({ runId: 'r', items: [completed()] });
  await assert.rejects(commits.send({ runId: 'r', items: [completed()] }), { status: 400, code: 'unknown_frame', message: 'a unknown_frame' });
  assert.equal(requests.length, 3);
});

for (const [name, answer, wanted] of [
  ['of an overloaded server', problem(429, 'overloaded', { 'retry-after': '0' }), 409],
  ['of a server with an overloaded part', problem(503, 'overloaded'), 409],
  ['of a server whose database went away', problem(503, 'database_unavailable'), 200],
  ['of a proxy', (res) => res.writeHead(504).end('<html>'), 200],
]) {
  test(`after the answer ${name}, a conflict is ${wanted}`, async (t) => {
    const conflict = { status: 409, error: 'conflict', message: 'exists' };
    const { commits, requests } = await serve(t, answer, results(conflict));
    const [result] = await commits.send({ runId: 'r', items: [completed()] });
    assert.equal(result.status, wanted);
    assert.equal(readFrames(requests[1].body)[0].meta.repeat, wanted === 200 ? true : undefined);
  });
}

test('a request that must not be carried out twice is repeated after an answer that says that it was not', async (t) => {
  const { http, requests } = await serve(t, problem(503, 'overloaded'), results({ status: 200 }), problem(503, 'stopping'));
  await http.request('PUT', '/x', { body: 'chunk' });
  assert.equal(requests.length, 2);
  await assert.rejects(http.request('PUT', '/x', { body: 'chunk' }), { status: 503 });
  assert.equal(requests.length, 3);
});

/** Lets mocked time pass until the promise is settled. */
async function passTime(t, promise) {
  let settled = false;
  const end = () => (settled = true);
  promise.then(end, end);
  while (!settled) {
    t.mock.timers.tick(200);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return promise;
}

test('the end of a step is sent for minutes, its start for seconds', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  const away = (res) => problem(503, 'stopping')(res);
  const { commits, requests } = await serve(t, ...Array.from({ length: 10_000 }, () => away));
  const began = Date.now();
  await assert.rejects(passTime(t, commits.send({ runId: 'r', items: [started()] })), { status: 503 });
  assert.ok(Date.now() - began < 10_000);
  const tries = requests.length;

  const sent = commits.send({ runId: 'r', items: [completed()], end: { ack: true } });
  await assert.rejects(passTime(t, sent), { status: 503 });
  assert.ok(requests.length > 10 * tries && Date.now() - began > 280_000);
});

test('a request without an answer is repeated once', async (t) => {
  const never = () => {};
  const { http, requests } = await serve(t, never, never, never);
  await assert.rejects(http.request('GET', '/x', { repeatable: true, timeout: 200, patience: 200 }), /no answer within 0.2 s/);
  assert.equal(requests.length, 2);
});

const start = (step) => eventItem({ eventType: 'step_started', correlationId: step });
const stepsOf = ({ body }) => readFrames(body).slice(1, -1).map(({ meta }) => meta.correlationId);

test('steps that start at once share a commit, and have outcomes of their own', async (t) => {
  const { commits, requests } = await serve(
    t, results({ status: 200, step: { stepId: 'a' } }), results({ status: 409 }, { status: 404, error: 'step_not_found' }), results({ status: 200 }),
  );
  const outcomes = await Promise.all(['a', 'b', 'c', 'd'].map((step) => commits.send({ runId: 'r', items: [start(step)] })));
  assert.deepEqual(requests.map(stepsOf), [['a'], ['b', 'c', 'd'], ['d']]);
  assert.deepEqual(outcomes.map(([{ status }]) => status), [200, 409, 404, 200]);
});

test('starts of other runs, and those after an error, are not held up', async (t) => {
  const refused = problem(400, 'malformed');
  const { commits, requests } = await serve(t, refused, refused, results({ status: 200 }));
  const send = (runId) => commits.send({ runId, items: [start('a')] });
  const sent = await Promise.allSettled([send('r'), send('other')]);
  assert.deepEqual(sent.map(({ status }) => status), ['rejected', 'rejected']);
  assert.deepEqual(await send('r'), [{ status: 200 }]);
  assert.equal(requests.length, 3);
});

test('a commit has at most 16 starts, and no more than a megabyte of them', async (t) => {
  const ok = (n) => results(...Array.from({ length: n }, () => ({ status: 200 })));
  const { commits, requests } = await serve(t, ok(1), ok(16), ok(3), ok(1));
  const large = () => eventItem({ eventType: 'step_started', correlationId: 'x', eventData: { input: new Uint8Array(600_000) } });
  await Promise.all([...Array.from({ length: 19 }, (_, i) => start(`s${i}`)), large(), large()].map((item) => commits.send({ runId: 'r', items: [item] })));
  assert.deepEqual(requests.map((request) => stepsOf(request).length), [1, 16, 3, 1]);
});

test('a step whose input the answer leaves out is read', async (t) => {
  const step = { stepId: 'step_1', status: 'running', attempt: 1 };
  const whole = (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ ...step, input: new Uint8Array([1]) }));
  const { http, commits, requests } = await serve(t, results({ status: 200, step }), whole);
  const { events } = createStorage({ http, commits, log: {}, errors, specVersion: 3 });
  const answer = await events.create('r', { eventType: 'step_started', correlationId: 'step_1' });
  assert.deepEqual([...answer.step.input], [1]);
  assert.equal(requests[1].url, '/sdk/v2/runs/r/steps/step_1?remoteRefBehavior=resolve');
});

test('the run of a hook comes with it, for the read that follows at once', async (t) => {
  const entity = (value) => (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode(value));
  const { http, commits, requests } = await serve(
    t, entity({ hookId: 'h', runId: 'r', run: { runId: 'r', status: 'running' } }), ...['completed', 'failed'].map((status) => entity({ runId: 'r', status })),
  );
  const { hooks, runs } = createStorage({ http, commits, log: {}, errors, specVersion: 3 });
  assert.deepEqual(await hooks.getByToken('tok'), { hookId: 'h', runId: 'r' });
  assert.equal((await runs.get('r')).status, 'running');
  assert.equal((await runs.get('r')).status, 'completed');
  const { hooks: others } = createStorage({ http, commits, log: {}, errors, specVersion: 7 });
  await others.getByToken('tok');
  assert.deepEqual(requests.map(({ url }) => url.split('/v2/')[1]), [
    'hooks/by-token?token=tok&withRun=true', 'runs/r?remoteRefBehavior=resolve', 'hooks/by-token?token=tok',
  ]);
});

test('a filter of several statuses and of attributes is one request, that of no status none', async (t) => {
  const page = (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ data: [], cursor: null, hasMore: false }));
  const { http, commits, requests } = await serve(t, page, page);
  const { runs } = createStorage({ http, commits, log: {}, errors, specVersion: 8 });
  await runs.list({ status: ['pending', 'running'], attributes: { $rootRunId: 'wrun_1' } });
  await runs.list({ status: 'failed', attributes: {} });
  assert.deepEqual(await runs.list({ status: [] }), { data: [], cursor: null, hasMore: false });
  assert.deepEqual(requests.map(({ url }) => [...new URL(url, 'http://x').searchParams]), [
    [['status', 'pending,running'], ['attributes', '{"$rootRunId":"wrun_1"}'], ['remoteRefBehavior', 'resolve']],
    [['status', 'failed'], ['remoteRefBehavior', 'resolve']],
  ]);
});

for (const [resolveData, ofEvents, ofEntities] of [
  [undefined, 'resolve', 'resolve'], ['all', 'resolve', 'resolve'], ['none', 'lazy', 'lazy'],
  ['skip-step-inputs', 'skip-step-inputs', 'resolve'], ['of-later-versions', 'resolve', 'resolve'],
]) {
  test(`payloads for resolveData ${resolveData}`, async (t) => {
    const events = (res) => res.writeHead(200).end(Buffer.concat(frame({ _end: 1 })));
    const entity = (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ data: [] }));
    const { http, commits, requests } = await serve(t, events, events, entity);
    const world = createStorage({ http, commits, log: {}, errors, specVersion: 8 });
    await world.events.list({ runId: 'r', resolveData });
    await world.events.listByCorrelationId({ correlationId: 'c', resolveData });
    await world.steps.list({ runId: 'r', resolveData });
    const asked = requests.map(({ url }) => new URL(url, 'http://x').searchParams.get('remoteRefBehavior'));
    assert.deepEqual(asked, [ofEvents, ofEvents, ofEntities]);
  });
}

test('from spec version 8, what is known of a log is for replays alone: it may lack the inputs of steps', async (t) => {
  const id = `evnt_${'1'.padStart(26, '0')}`;
  const page = (res) => res.writeHead(200).end(Buffer.concat([...frame({ eventId: id, eventType: 'run_created' }), ...frame({ _end: 1 })]));
  const { http, commits, requests } = await serve(t, page, page, page);
  const read = async (specVersion, resolveData) => {
    const log = createLog({ http, logs: new Logs() });
    const { events } = createStorage({ http, commits, log, errors, specVersion });
    const delivery = new Delivery({ message: {} }, 'r', commits);
    await delivery.do(() => events.list({ runId: 'r', pagination: { sortOrder: 'asc' }, resolveData }));
    return log.length('r');
  };
  assert.deepEqual([await read(8, 'skip-step-inputs'), await read(8, 'all'), await read(7, 'all')], [1, 0, 1]);
  const asked = requests.map(({ url }) => new URL(url, 'http://x').searchParams.get('remoteRefBehavior'));
  assert.deepEqual(asked, ['skip-step-inputs', 'resolve', 'resolve']);
});

test('the start of a run says what executes it, from spec version 8, and what its log is for', async (t) => {
  const answers = Array.from({ length: 3 }, () => results({ status: 200 }));
  const { http, commits, requests } = await serve(t, ...answers);
  for (const [specVersion, eventType] of [[7, 'run_started'], [8, 'run_started'], [8, 'run_failed']]) {
    const { events } = createStorage({ http, commits, log: { drop() {} }, errors, specVersion });
    await events.create('r', { eventType, specVersion: 6 }, { resolveData: 'skip-step-inputs' });
  }
  const metas = requests.map(({ body }) => readFrames(body)[1].meta);
  assert.deepEqual(metas.map((meta) => [meta.executorSpecVersion, meta.specVersion]), [[undefined, 6], [8, 6], [undefined, 6]]);
  assert.equal(metas[1].eventsRemoteRefBehavior, 'skip-step-inputs');
});

test('a hook that another run has taken over is the error that names it', async (t) => {
  const taken = { status: 409, error: 'hook-force-claimed', message: 'taken', claimedBy: { runId: 'wrun_2', hookId: 'hook_2' } };
  const { http, commits, requests } = await serve(t, results({ status: 200 }), results(taken), results(taken));
  const { events } = createStorage({ http, commits, log: {}, errors, specVersion: 8 });
  await events.create('r', { eventType: 'hook_created', correlationId: 'hook_1', eventData: { token: 'tok', force: true } });
  assert.equal(readFrames(requests[0].body)[1].meta.hookForce, true);
  const received = { eventType: 'hook_received', correlationId: 'hook_1', eventData: { token: 'tok' } };
  await assert.rejects(events.create('r', received), {
    name: 'HookForceClaimedError', token: 'tok', claimedByRunId: 'wrun_2', claimedByHookId: 'hook_2',
  });
  const { HookForceClaimedError, ...older } = errors;
  const before = createStorage({ http, commits, log: {}, errors: older, specVersion: 7 });
  await assert.rejects(before.events.create('r', received), { name: 'EntityConflictError' });
});

test('within a delivery, the answer to a forced hook is the server\'s: who lost the token, or why it was kept', async (t) => {
  const ref = { runId: 'wrun_2', hookId: 'hook_9' };
  const hook = { runId: 'r', hookId: 'hook_1', claimedFrom: ref };
  const eventId = `evnt_${'5'.padStart(26, '0')}`;
  const created = { event: { eventId, eventType: 'hook_created', eventData: { token: 'tok', force: true, forceClaimedFrom: ref } }, hook };
  const kept = { event: { eventId, eventType: 'hook_conflict', eventData: { token: 'tok', forceRefusedReason: 'victim-spec-version' } } };
  for (const answer of [created, kept]) {
    const { http, commits, requests } = await serve(t, results({ status: 200 }, { status: 200, ...answer }));
    const { events } = createStorage({ http, commits, log: createLog({ http, logs: new Logs() }), errors, specVersion: 8 });
    const delivery = new Delivery({ message: {} }, 'r', commits);
    const got = await delivery.do(async () => {
      await events.create('r', { eventType: 'step_created', correlationId: 'step_1' });
      return events.create('r', { eventType: 'hook_created', correlationId: 'hook_1', eventData: { token: 'tok', force: true } });
    });
    assert.deepEqual(got, answer);
    assert.deepEqual(readFrames(requests[0].body).slice(1, -1).map(({ meta }) => [meta.eventType, meta.hookForce]), [
      ['step_created', undefined], ['hook_created', true],
    ]);
  }
});

test('the handler knows the count and the time of its message', (t) => {
  const code = `${CREATE}
    let meta;
    const handle = world.createQueueHandler('', (_, given) => void (meta = given));
    const headers = {
      'ce-vqsmessageid': 'msg_1', 'ce-vqsqueuename': 't', 'ce-vqsreceipthandle': 'rh', 'ce-vqsdeliverycount': '3',
      'ce-vqscreatedat': '2026-10-01T12:00:00.000Z',
    };
    const body = JSON.stringify({ queueName: '__wkf_workflow_w', payload: {} });
    await handle(new Request('http://app/', { method: 'POST', body, headers }));
    console.log(JSON.stringify(meta))`;
  assert.deepEqual(output(makeApp(t, 8), code), {
    queueName: '__wkf_workflow_w', messageId: 'msg_1', attempt: 3, deliveryCount: 3, createdAt: '2026-10-01T12:00:00.000Z',
  });
});

test('with signing keys, deliveries need a signature, unless the process has fetched them', (t) => {
  const secret = `swsk_${Buffer.alloc(32, 1).toString('base64')}`;
  const code = `${CREATE}
    const handle = world.createQueueHandler('', () => { throw new Error('the delivery was handled'); });
    const { PULL_TOKEN } = await import(${JSON.stringify(new URL('lib/http.js', import.meta.url))});
    const answers = [];
    for (const pulled of ['1', PULL_TOKEN]) {
      const headers = { 'stepwell-pulled': pulled };
      const answer = await handle(new Request('http://app/', { method: 'POST', body: '{}', headers }));
      answers.push([answer.status, (await answer.json()).message]);
    }
    console.log(JSON.stringify(answers));`;
  const [outsider, fetched] = output(makeApp(t, 3), code, { STEPWELL_SIGNING_KEYS: secret });
  assert.deepEqual(outsider, [401, 'the delivery is refused: the call is not signed']);
  assert.notEqual(fetched[0], 401);
});

test('the creation of a run and its first message are one request', async (t) => {
  const { commits, requests } = await serve(t, results({ status: 409, error: 'conflict', message: 'exists' }, { status: 201, messageId: 'm' }));
  const message = messageItem('__wkf_workflow_w', { runId: 'r' }, {}, { deployment: 'd', specVersion: 3 });
  const created = commits.start('r', eventItem({ eventType: 'run_created' }));
  const sent = commits.join('r', message);
  assert.equal((await created).status, 409);
  assert.deepEqual(await sent, [{ status: 201, messageId: 'm' }]);
  assert.equal(requests.length, 1);
  assert.equal(commits.join('r', message), undefined);
});

for (const [name, outcome, requestsWanted] of [
  ['was applied', { status: 409, error: 'conflict', message: 'exists' }, 2],
  ['was not applied', { status: 200 }, 3],
]) {
  test(`the first message is sent once: the commit that got no answer ${name}`, async (t) => {
    const { commits, requests } = await serve(t, lost, results(outcome), results({ status: 201, messageId: 'm' }));
    const created = commits.start('r', eventItem({ eventType: 'run_created' }));
    const sent = commits.join('r', messageItem('__wkf_workflow_w', { runId: 'r' }, {}, { deployment: 'd', specVersion: 3 }));
    assert.equal((await created).status, outcome.status);
    assert.equal((await sent)[0].status, 201);
    const kinds = requests.map(({ body }) => readFrames(body).slice(1, -1).map(({ meta }) => meta.eventType ?? 'message'));
    const wanted = [['run_created', 'message'], ['run_created'], ['message']];
    assert.deepEqual(kinds, wanted.slice(0, requestsWanted));
  });
}

test('a refused creation of a run refuses its message', async (t) => {
  const { commits } = await serve(t, results({ status: 400, error: 'invalid_request', message: 'bad attribute' }));
  const created = commits.start('r', eventItem({ eventType: 'run_created' }));
  const [sent] = await commits.join('r', messageItem('__wkf_workflow_w', { runId: 'r' }, {}, { deployment: 'd', specVersion: 3 }));
  assert.throws(() => commits.accept(sent), { name: 'WorkflowWorldError', status: 400, message: 'bad attribute' });
  assert.equal((await created).status, 400);
});

for (const [name, answer] of [
  ['no such endpoint', (res) => res.writeHead(404).end('{"code":"not_found","message":"Not Found"}')],
  ['no version', (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode({ results: [] }))],
]) {
  test(`an older server: the client names the version that it needs (${name})`, async (t) => {
    const { commits } = await serve(t, answer);
    await assert.rejects(commits.send({ runId: 'r', items: [completed()] }), {
      code: 'world_version', message: /does not speak version 1 of the World protocol.*Update the server/,
    });
  });
}

for (const [status, headers, expected] of [
  [409, {}, { name: 'EntityConflictError' }],
  [410, {}, { name: 'RunExpiredError' }],
  [425, { 'retry-after': '7' }, { name: 'TooEarlyError', retryAfter: 7 }],
  [429, { 'retry-after': '3' }, { name: 'ThrottleError', retryAfter: 3 }],
  [500, {}, { name: 'WorkflowWorldError', status: 500, code: 'x' }],
]) {
  test(`status ${status} is a ${expected.name}`, async (t) => {
    const { http } = await serve(t, problem(status, 'x', headers));
    await assert.rejects(http.request('POST', '/x'), expected);
  });
}

test('requests share a connection', async (t) => {
  const answer = (res) => res.writeHead(200, { 'content-type': 'application/cbor' }).end(encode(1));
  const { http, requests } = await serve(t, answer, answer, answer);
  for (let i = 0; i < 3; i++) await http.get('/x');
  assert.equal(new Set(requests.map(({ socket }) => socket)).size, 1);
});

test('a stream that is cut fails, and one that ends does not', async (t) => {
  const { http } = await serve(t, (res) => res.end('whole'), (res) => {
    res.write('part');
    setImmediate(() => res.destroy());
  });
  assert.equal(await new Response(await http.open('/v2/stream/s')).text(), 'whole');
  await assert.rejects(new Response(await http.open('/v2/stream/s')).text(), { code: 'TRANSPORT' });
});

test('after close, nothing holds the process open', async (t) => {
  // The live read would last for ever.
  const { base } = await serve(t, (res) => res.write('first'), (res) => res.end('[]'));
  const code = `${CREATE}
    const reader = (await world.readFromStream('s')).getReader();
    await reader.read();
    await world.listStreamsByRunId('r');
    reader.read().catch(() => {});
    await world.close();
    console.log('closed');`;
  const { execFile } = await import('node:child_process');
  const app = makeApp(t, 3);
  const env = { ...ENV, WORKFLOW_VERCEL_BACKEND_URL: base };
  const stdout = await new Promise((resolve, reject) => {
    execFile(process.execPath, ['--input-type=module', '-e', code], { cwd: app, env, timeout: 15_000 }, (err, out) => (err ? reject(err) : resolve(out)));
  });
  assert.equal(stdout, 'closed\n');
});

test('publishes exactly the files that package.json lists', () => {
  const [pack] = JSON.parse(execFileSync('npm', ['pack', '--dry-run', '--json'], { cwd: HERE, encoding: 'utf8' }));
  const paths = pack.files.map((file) => file.path);
  assert.deepEqual(paths.filter((path) => path.includes('.test.')), []);
  for (const path of ['README.md', 'index.d.ts', 'index.js', 'lib/own.js', 'package.json', 'preload.mjs']) {
    assert.ok(paths.includes(path), path);
  }
});
