// What the client takes from the app's own SDK, and from the environment.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, isAbsolute, join } from 'node:path';

// The spec versions of the SDK (the format of a run) that this package knows: those of entities.SDKLines, which a test
// compares with them. An unknown version may need server features that are missing, and would fail only in the middle
// of a run.
const OLDEST_SPEC = 3;
const NEWEST_SPEC = 8;
// A version that no release has yet, and servers serve with a setting only: see fence.js.
const SPEC_WITH_SETTING = 9;

// The dependency paths to a package of the SDK. The path through `workflow` comes first: it finds the version that
// the SDK was built with, even with a package manager that isolates dependencies. A copy found directly may belong
// to another package.
const ROUTES = [['workflow', '@workflow/core'], ['@workflow/core'], []];

export const USER_AGENT = `@stepwell/world node/${process.versions.node}`;

/** Loads a package of the app's SDK. */
export function requireFromSdk(name) {
  const found = find(name);
  if (found) return createRequire(found)(found);
  throw fail(`cannot find ${name} from ${process.cwd()}. Start the app in the folder where "workflow" is installed.`);
}

/** Where a package of the app's SDK is, or undefined. */
function find(name) {
  const roots = [join(process.cwd(), 'index.js'), process.argv[1], import.meta.url].filter(
    (root) => root && (isAbsolute(root) || root.startsWith('file:')), // with node -e, argv[1] is any argument
  );
  for (const root of roots) {
    for (const route of ROUTES) {
      const found = resolve(root, [...route, name]);
      if (found) return found;
    }
  }
  return undefined;
}

/**
 * Reads the settings. The SDK and the official client read two of them only from their own variables, which are set
 * unless they are already.
 */
export function configure() {
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
  return { base: env.WORKFLOW_VERCEL_BACKEND_URL, key: env.STEPWELL_API_KEY, deployment: env.VERCEL_DEPLOYMENT_ID };
}

/** @throws if the SDK has a spec version that this package does not know: which one, why, and what helps. */
export function refuseUnknownVersion(specVersion) {
  if (specVersion >= OLDEST_SPEC && specVersion <= SPEC_WITH_SETTING) return;
  const app = `this app has ${sdkName()} of spec version ${specVersion ?? 'none'}, and this @stepwell/world knows ${OLDEST_SPEC} to ${NEWEST_SPEC}`;
  if (!(specVersion > SPEC_WITH_SETTING)) throw fail(`${app}: install a newer one (npm i workflow).`);
  throw fail(
    `${app}; a run of a newer version could fail in its middle. Install an older one (npm i workflow@~5.2), or update the Stepwell server and install the package ` +
      'that it serves (npm i <server>/clients/world.tgz).',
  );
}

/** The error for a server that does not serve the spec version of the SDK, which this package does. */
export function refuseServer(specVersion) {
  return fail(
    `this app has ${sdkName()} of spec version ${specVersion}, whose runs need a server that fences their writers, and ` +
      `the Stepwell server serves no runs of it. Install an older one (npm i workflow@~5.2), or set ` +
      'STEPWELL_SDK_SPEC_9=true on the server, after an update if it is older than this package.',
  );
}

/** The app's package "workflow" with its version, as far as they are found. */
function sdkName() {
  const found = find('workflow');
  for (let at = found && dirname(found); at && at !== dirname(at); at = dirname(at)) {
    const file = join(at, 'package.json');
    const { name, version } = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : {};
    if (name) return version ? `${name} ${version}` : name;
  }
  return 'a Workflow SDK';
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

export function fail(sentence) {
  return new Error(`[@stepwell/world] ${sentence}`);
}
