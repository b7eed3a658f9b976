// The World on the official client. Each test runs a process in a temporary app with a fake SDK. The tests check which
// copy of the client is found, which configuration it gets, and which message a user sees when something is missing.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const ENV = {
  PATH: process.env.PATH, STEPWELL_CLIENT: 'official', STEPWELL_URL: 'http://stepwell.test:8788/', STEPWELL_DEPLOYMENT_ID: 'shop',
};
const PRELOAD = ['--import', '@stepwell/world/preload'];
const GET = (place) => `globalThis[Symbol.for('@workflow/world//${place}')]`;
const REQUIRE = 'const { createWorld } = require("@stepwell/world")';

// The SDK lines by spec version: the name of the client's factory, and the properties of its World.
const LINES = {
  3: { factory: 'createVercelWorld' },
  5: { factory: 'createWorld', processExitTriggersQueueRedelivery: true },
  7: { factory: 'createWorld', capabilities: { hookRetention: { active: true }, deploymentAffinity: true } },
  8: {
    factory: 'createWorld',
    capabilities: {
      hookRetention: { active: true }, deploymentAffinity: true, hookForceClaim: true, dynamicWorkflowCode: true, inBandEventTime: true,
    },
  },
  9: { factory: 'createWorld', capabilities: { inBandFence: true, inBandEventTime: true } },
};

function CLIENT(copy, specVersion) {
  const { factory, ...properties } = LINES[specVersion] ?? { factory: 'createWorld' };
  return `
  export const ${factory} = (config) => ({
    ...${JSON.stringify(properties)},
    copy: ${JSON.stringify(copy)},
    specVersion: ${specVersion},
    config,
    backend: process.env.WORKFLOW_VERCEL_BACKEND_URL,
    deployment: process.env.VERCEL_DEPLOYMENT_ID,
    events: { create() {} },
    getEncryptionKeyForRun() {},
    resolveLatestDeploymentId() {},
  });`;
}

function install(folder, name, source = '') {
  const home = join(folder, 'node_modules', name);
  mkdirSync(home, { recursive: true });
  const exports = { '.': { types: './index.d.ts', default: './index.js' } };
  writeFileSync(join(home, 'package.json'), JSON.stringify({ name, version: '4.8.9', type: 'module', exports }));
  writeFileSync(join(home, 'index.js'), source);
  return home;
}

function link(from, to) {
  mkdirSync(dirname(to), { recursive: true });
  symlinkSync(from, to, 'dir');
}

/** Creates an app that links this package, in the node_modules layout of npm or pnpm. */
function makeApp(t, layout, specVersion = 3) {
  const app = mkdtempSync(join(tmpdir(), 'stepwell-world-'));
  t.after(() => rmSync(app, { recursive: true, force: true }));
  link(HERE, join(app, 'node_modules/@stepwell/world'));
  if (layout === 'npm') {
    install(app, 'workflow');
    install(app, '@workflow/core');
    install(app, '@workflow/world-vercel', CLIENT('hoisted', specVersion));
    install(app, '@workflow/errors');
  }
  if (layout === 'pnpm') {
    const store = (name) => join(app, 'node_modules/.pnpm', name);
    const workflow = install(store('workflow'), 'workflow');
    const core = install(store('core'), '@workflow/core');
    install(store('core'), '@workflow/world-vercel', CLIENT('strict', specVersion));
    link(workflow, join(app, 'node_modules/workflow'));
    link(core, join(store('workflow'), 'node_modules/@workflow/core'));
  }
  if (layout === 'two versions') {
    install(app, 'workflow');
    const core = install(app, '@workflow/core');
    install(app, '@workflow/world-vercel', CLIENT("another package's", specVersion));
    install(core, '@workflow/world-vercel', CLIENT("the SDK's", specVersion));
  }
  if (layout === 'client only') {
    install(app, '@workflow/world-vercel', CLIENT('direct', specVersion));
  }
  return app;
}

function run(app, code, env = ENV, flags = []) {
  return spawnSync(process.execPath, [...flags, '-e', code], { cwd: app, env, encoding: 'utf8' });
}

function world(app, env = ENV, flags = [], code = `${REQUIRE}; console.log(JSON.stringify(createWorld()))`) {
  const { stdout, stderr, status } = run(app, code, env, flags);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

for (const [layout, copy] of [
  ['npm', 'hoisted'],
  ['pnpm', 'strict'],
  ['two versions', "the SDK's"],
  ['client only', 'direct'],
]) {
  test(`finds the client of the app's SDK: ${layout}`, (t) => {
    assert.equal(world(makeApp(t, layout)).copy, copy);
  });
}

test('the environment becomes the configuration of the client', (t) => {
  const app = makeApp(t, 'npm');
  const bare = world(app);
  assert.equal(bare.backend, 'http://stepwell.test:8788/sdk');
  assert.equal(bare.deployment, 'shop');
  assert.equal(bare.config.token, 'none');
  assert.match(bare.config.projectConfig.projectId, /^prj_/);
  assert.ok(bare.config.projectConfig.teamId);
  assert.equal(world(app, { ...ENV, STEPWELL_API_KEY: 'sk_1' }).config.token, 'sk_1');
});

test("the client's own environment variables take precedence", (t) => {
  const env = { ...ENV, WORKFLOW_VERCEL_BACKEND_URL: 'http://other/base', VERCEL_DEPLOYMENT_ID: 'dpl_1' };
  const { backend, deployment } = world(makeApp(t, 'npm'), env);
  assert.deepEqual({ backend, deployment }, { backend: 'http://other/base', deployment: 'dpl_1' });
});

test('methods that call the hosted service are removed', (t) => {
  const code = `${REQUIRE}; const w = createWorld();
    console.log(JSON.stringify([typeof w.getEncryptionKeyForRun, typeof w.resolveLatestDeploymentId]))`;
  assert.deepEqual(world(makeApp(t, 'npm'), ENV, [], code), ['undefined', 'undefined']);
});

test('the default export is createWorld, as the SDK calls it', (t) => {
  const code = 'console.log(JSON.stringify(require(process.env.WORKFLOW_TARGET_WORLD).default()))';
  assert.equal(world(makeApp(t, 'npm'), { ...ENV, WORKFLOW_TARGET_WORLD: '@stepwell/world' }, [], code).copy, 'hoisted');
});

for (const [name, env, message] of [
  ['no server', { STEPWELL_URL: '' }, /set STEPWELL_URL/],
  ['no deployment', { STEPWELL_DEPLOYMENT_ID: '' }, /set STEPWELL_DEPLOYMENT_ID/],
  ['development mode', { NODE_ENV: 'development' }, /NODE_ENV is "development"/],
  ['signing keys', { STEPWELL_SIGNING_KEYS: 'swsk_x' }, /the official client does not verify signatures/],
]) {
  test(`refuses to start: ${name}`, (t) => {
    const { status, stderr } = run(makeApp(t, 'npm'), `${REQUIRE}; createWorld()`, { ...ENV, ...env });
    assert.equal(status, 1);
    assert.match(stderr, message);
  });
}

test('refuses to start: no SDK', (t) => {
  const { status, stderr } = run(makeApp(t, 'empty'), `${REQUIRE}; createWorld()`);
  assert.equal(status, 1);
  assert.match(stderr, /cannot find @workflow\/world-vercel/);
});

for (const specVersion of [3, 5, 7, 8]) {
  test(`has the spec version of the app's SDK: ${specVersion}`, (t) => {
    const app = makeApp(t, 'npm', specVersion);
    assert.equal(world(app).specVersion, specVersion);
    const look = `console.log(JSON.stringify(${GET('cache')}))`;
    assert.equal(world(app, ENV, PRELOAD, look).specVersion, specVersion);
  });
}

for (const [specVersion, message] of [
  [2, /this app has workflow 4\.8\.9 of spec version 2, and this @stepwell\/world knows 3 to 8: install a newer one \(npm i workflow\)\.$/m],
  [undefined, /of spec version none, and .* knows 3 to 8: install a newer one/],
  [10, /spec version 10, and .* 3 to 8; a run of a newer version could fail .* \(npm i workflow@~5\.2\), or update the Stepwell server/],
]) {
  test(`refuses to start: an SDK of version ${specVersion}`, (t) => {
    const { status, stderr } = run(makeApp(t, 'npm', `${specVersion}`), `${REQUIRE}; createWorld()`);
    assert.equal(status, 1);
    assert.match(stderr, message);
  });
}

test('a server without spec version 9 gets no write of it', (t) => {
  const code = `${REQUIRE};
    const server = require('node:http').createServer((_, res) => res.writeHead(200, { 'stepwell-world': '1', 'stepwell-spec': '8' }).end());
    server.listen(0, '127.0.0.1', async () => {
      process.env.STEPWELL_URL = 'http://127.0.0.1:' + server.address().port;
      const { events } = createWorld();
      console.log(JSON.stringify(await events.create().then(() => 'written', (err) => err.message)));
      process.exit();
    });`;
  assert.match(world(makeApp(t, 'npm', 9), ENV, [], code), /npm i workflow@~5\.2\), or set STEPWELL_SDK_SPEC_9=true/);
});

test('what the server does not do is off, other capabilities are unchanged', (t) => {
  const [before, newest] = [7, 8].map((specVersion) => world(makeApp(t, 'npm', specVersion)).capabilities);
  assert.deepEqual(before, { hookRetention: { active: true }, deploymentAffinity: false });
  assert.deepEqual(newest, { ...before, hookForceClaim: true });
  assert.deepEqual(world(makeApp(t, 'npm', 9)).capabilities, { deploymentAffinity: false, inBandFence: true });
  const middle = world(makeApp(t, 'npm', 5));
  assert.equal(middle.capabilities, undefined);
  assert.equal(middle.processExitTriggersQueueRedelivery, true);
});

test('later SDK lines accept development mode', (t) => {
  assert.equal(world(makeApp(t, 'npm', 5), { ...ENV, NODE_ENV: 'development' }).specVersion, 5);
});

test('warns about VERCEL_URL outside Vercel only', (t) => {
  const app = makeApp(t, 'npm');
  const code = `${REQUIRE}; createWorld()`;
  assert.match(run(app, code, { ...ENV, VERCEL_URL: 'x.example' }).stderr, /VERCEL_URL is set/);
  assert.doesNotMatch(run(app, code, { ...ENV, VERCEL_URL: 'x.example', VERCEL: '1' }).stderr, /VERCEL_URL/);
});

test('preload: both properties return the same world', (t) => {
  const code = `const same = ${GET('cache')} === ${GET('stubbedCache')};
    console.log(JSON.stringify({ same, copy: ${GET('cache')}.copy }))`;
  assert.deepEqual(world(makeApp(t, 'npm'), ENV, PRELOAD, code), { same: true, copy: 'hoisted' });
});

test('preload: setWorld still works', (t) => {
  const code = `${GET('cache')} = { copy: 'mine' }; console.log(JSON.stringify(${GET('cache')}))`;
  assert.equal(world(makeApp(t, 'npm'), ENV, PRELOAD, code).copy, 'mine');
});

test('preload: a process that uses no world needs no settings', (t) => {
  const { status, stderr } = run(makeApp(t, 'empty'), '', { PATH: ENV.PATH }, PRELOAD);
  assert.equal(status, 0, stderr);
  assert.equal(stderr, '');
});
