import { createRequire } from 'node:module';
import { isAbsolute, join } from 'node:path';

// The spec versions of the SDK (what a run is written in) that this package was tried with: 3 is the 4.x
// line, 5 is 5.0.0-beta.35, 7 is 5.0.0-beta.55 (6 with WORKFLOW_SEALED_LOG=0). One it does not know may
// need something of the server that an older one does not have, and would show that only in the middle of runs.
const OLDEST_SPEC = 3;
const NEWEST_SPEC = 7;

// Where the official client hangs in an app. The way through `workflow` comes first: it ends at the
// version that SDK was built with, also where a package manager keeps dependencies strictly apart,
// while a copy found directly may belong to another package.
const CLIENT = '@workflow/world-vercel';
const ROUTES = [['workflow', '@workflow/core'], ['@workflow/core'], []];

// The client leaves its hosted backend only when it is given a project and a team. The server tells
// projects apart by API key, so these two are constants, in the form the client's tools accept.
const PROJECT = { projectId: 'prj_stepwell', teamId: 'team_stepwell', environment: 'production' };

/** The World of a Stepwell server, configured from the environment (see the README). */
export function createWorld() {
  configure();
  const client = requireClient();
  const world = (client.createWorld ?? client.createVercelWorld)({
    // The client wants a token even where the server asks for none.
    token: process.env.STEPWELL_API_KEY || 'none',
    projectConfig: PROJECT,
  });
  refuseUnknownVersion(world.specVersion);
  refuseDevelopmentMode(world.specVersion);
  return {
    // Its spec version among others: the SDK writes it on each run, and refuses a World that says another.
    ...world,
    // "A deployment is one build for ever" is not so here. Its name stays the same from build to build, and
    // which app it means is for the server's operator to say: an app that is sent a run of another name has
    // been told to take it over. With this on, it would send the run back to that name and, in the end, fail it.
    ...(world.capabilities && { capabilities: { ...world.capabilities, deploymentAffinity: false } }),
    // Both would call the hosted service, at a fixed address and with our token. Without them the
    // SDK does not encrypt, and takes deployment "latest" to be the current one.
    getEncryptionKeyForRun: undefined,
    resolveLatestDeploymentId: undefined,
  };
}

export default createWorld;

// The client reads these two from the environment and nowhere else.
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
      throw fail('set STEPWELL_DEPLOYMENT_ID to the name under which the server knows the URL of this app.');
    }
    env.VERCEL_DEPLOYMENT_ID = env.STEPWELL_DEPLOYMENT_ID;
  }
  if (env.VERCEL_URL && env.VERCEL !== '1') {
    console.warn(
      `[@stepwell/world] VERCEL_URL is set outside Vercel: webhook URLs will start with https://${env.VERCEL_URL}, ` +
        'and the SDK may end the process when a replay takes long. Unset it.',
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
    `the Workflow SDK of this app has spec version ${specVersion ?? 'none'}, and this package knows ` +
      `${OLDEST_SPEC} to ${NEWEST_SPEC}: ${remedy}.`,
  );
}

// On the 4.x line (spec version 3) the queue client omits the deployment of each message when
// NODE_ENV is "development". No server could route those; a clear stop beats runs that never move.
function refuseDevelopmentMode(specVersion) {
  if (process.env.NODE_ENV === 'development' && !(specVersion > 3)) {
    throw fail(
      'NODE_ENV is "development", in which Workflow SDK 4 sends messages that no server can route. ' +
        'Use another NODE_ENV, or leave WORKFLOW_TARGET_WORLD unset to develop on the local world.',
    );
  }
}

function requireClient() {
  const roots = [join(process.cwd(), 'index.js'), process.argv[1], import.meta.url].filter(
    (root) => root && (isAbsolute(root) || root.startsWith('file:')), // node -e leaves any word there
  );
  for (const root of roots) {
    for (const route of ROUTES) {
      const client = resolve(root, [...route, CLIENT]);
      if (client) return createRequire(client)(client);
    }
  }
  throw fail(`cannot find ${CLIENT} from ${process.cwd()}. Start the app in the folder where "workflow" is installed.`);
}

/** Follows a chain of dependencies, each seen from the one before; undefined where it breaks. */
function resolve(root, chain) {
  try {
    return chain.reduce((from, name) => createRequire(from).resolve(name), root);
  } catch (err) {
    if (err.code === 'MODULE_NOT_FOUND' || err.code === 'ERR_PACKAGE_PATH_NOT_EXPORTED') return undefined;
    throw err;
  }
}

function fail(sentence) {
  return new Error(`[@stepwell/world] ${sentence}`);
}
