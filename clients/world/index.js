import { createRequire } from 'node:module';
import { isAbsolute, join } from 'node:path';

// The spec versions of the SDK (the format of a run) that this package is tested with: 3 is the 4.x line, 5 is
// 5.0.0-beta.35, 7 is 5.0.0-beta.55 (6 with WORKFLOW_SEALED_LOG=0). An unknown version may need server features
// that are missing, and would fail only in the middle of a run.
const OLDEST_SPEC = 3;
const NEWEST_SPEC = 7;

// The dependency paths to the official client. The path through `workflow` comes first: it finds the version that
// the SDK was built with, even with a package manager that isolates dependencies. A copy found directly may belong
// to another package.
const CLIENT = '@workflow/world-vercel';
const ROUTES = [['workflow', '@workflow/core'], ['@workflow/core'], []];

// The client uses another backend than the hosted one only if it has a project and a team. Stepwell identifies
// projects by API key, so both are constants, in a form that the client's tools accept.
const PROJECT = { projectId: 'prj_stepwell', teamId: 'team_stepwell', environment: 'production' };

/** The World of a Stepwell server, configured from the environment (see the README). */
export function createWorld() {
  configure();
  const client = requireClient();
  const world = (client.createWorld ?? client.createVercelWorld)({
    // The client requires a token even if the server does not.
    token: process.env.STEPWELL_API_KEY || 'none',
    projectConfig: PROJECT,
  });
  refuseUnknownVersion(world.specVersion);
  refuseDevelopmentMode(world.specVersion);
  return {
    // This includes specVersion: the SDK stores it in each run, and refuses a World with another one.
    ...world,
    // The SDK assumes that a deployment is one immutable build. On Stepwell, a deployment name is stable across
    // builds, and the operator decides which app serves it: an app that receives another deployment's run is meant
    // to take it over. With this capability on, the SDK would send the run back, and finally fail it.
    ...(world.capabilities && { capabilities: { ...world.capabilities, deploymentAffinity: false } }),
    // Both would call the hosted service at a fixed address with our token. Without them, the SDK does not encrypt,
    // and resolves deployment "latest" to the current one.
    getEncryptionKeyForRun: undefined,
    resolveLatestDeploymentId: undefined,
  };
}

export default createWorld;

// The client reads these two settings only from the environment.
function configure() {
  const env = process.env;
  if (!env.WORKFLOW_VERCEL_BACKEND_URL) {
    if (!env.STEPWELL_URL) {
      throw fail('set STEPWELL_URL to the address of your Stepwell server, for example http://127.0.0.1:8788.');
    }
    env.WORKFLOW_VERCEL_BACKEND_URL = env.STEPWELL_URL.replace(/\/+$/, '') + '/sdk';
  }
  if (!env.VERCEL_DEPLOYMENT_ID) {
    if (!env.STEPWELL_DEPLOYMENT_ID) {
      throw fail('set STEPWELL_DEPLOYMENT_ID to the deployment name of this app on the server.');
    }
    env.VERCEL_DEPLOYMENT_ID = env.STEPWELL_DEPLOYMENT_ID;
  }
  if (env.VERCEL_URL && env.VERCEL !== '1') {
    console.warn(
      `[@stepwell/world] VERCEL_URL is set outside Vercel: webhook URLs will start with https://${env.VERCEL_URL}, ` +
        'and the SDK may exit the process if a replay takes long. Unset it.',
    );
  }
}

function refuseUnknownVersion(specVersion) {
  if (specVersion >= OLDEST_SPEC && specVersion <= NEWEST_SPEC) return;
  const remedy =
    specVersion > NEWEST_SPEC
      ? 'update the Stepwell server and install the package it serves (npm install <server>/clients/world.tgz), or use an older "workflow"'
      : 'update "workflow" to 4.8 or newer';
  throw fail(
    `the Workflow SDK of this app has spec version ${specVersion ?? 'none'}, but this package supports ` +
      `${OLDEST_SPEC} to ${NEWEST_SPEC}: ${remedy}.`,
  );
}

// On the 4.x line (spec version 3), the queue client omits the deployment from messages if NODE_ENV is
// "development". No server can route such messages, so fail early instead of leaving runs stuck.
function refuseDevelopmentMode(specVersion) {
  if (process.env.NODE_ENV === 'development' && !(specVersion > 3)) {
    throw fail(
      'NODE_ENV is "development", and in that mode Workflow SDK 4 sends messages that no server can route. ' +
        'Use another NODE_ENV, or leave WORKFLOW_TARGET_WORLD unset to develop on the local world.',
    );
  }
}

function requireClient() {
  const roots = [join(process.cwd(), 'index.js'), process.argv[1], import.meta.url].filter(
    (root) => root && (isAbsolute(root) || root.startsWith('file:')), // with node -e, argv[1] is any argument
  );
  for (const root of roots) {
    for (const route of ROUTES) {
      const client = resolve(root, [...route, CLIENT]);
      if (client) return createRequire(client)(client);
    }
  }
  throw fail(`cannot find ${CLIENT} from ${process.cwd()}. Start the app in the folder where "workflow" is installed.`);
}

/** Resolves each package from the one before it. Returns undefined if one of them is not found. */
function resolve(root, packages) {
  try {
    return packages.reduce((from, name) => createRequire(from).resolve(name), root);
  } catch (err) {
    if (err.code === 'MODULE_NOT_FOUND' || err.code === 'ERR_PACKAGE_PATH_NOT_EXPORTED') return undefined;
    throw err;
  }
}

function fail(sentence) {
  return new Error(`[@stepwell/world] ${sentence}`);
}
