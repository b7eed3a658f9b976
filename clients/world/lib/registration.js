// Registers the app's address with the server, so that nobody has to.
import { Http } from './http.js';
import { requireFromSdk, USER_AGENT } from './sdk.js';

// The pauses between the tries while the server is away; the last one repeats.
const PAUSES_MS = [500, 1000, 2000, 5000, 15_000];
const TIMEOUT_MS = 10_000;

// The SDK's command line, under each of its names.
const COMMAND_LINE = /[\\/](\.bin[\\/](workflow|wf)|@?workflow[\\/](cli[\\/])?bin[\\/]run\.js)$/;

// A process creates several Worlds, of several copies of this module if a framework bundles it. One registers.
const begun = (globalThis[Symbol.for('@stepwell/world//registrations/1')] ??= new Set());

/**
 * Registers the deployment at STEPWELL_APP_URL, if that is set, in the background. The address of a server that is away
 * is tried for as long as the process lives. A refusal is reported on stderr, and does not stop the app.
 */
export function register({ base, key, deployment }) {
  const url = process.env.STEPWELL_APP_URL;
  if (!url || !servesApp(process)) return;
  const registration = `${base} ${deployment} ${url}`;
  if (begun.has(registration)) return;
  begun.add(registration);

  const errors = requireFromSdk('@workflow/errors');
  const http = new Http({ base: base.replace(/\/sdk$/, '/v1'), key, errors, userAgent: USER_AGENT });
  keepTrying(http, deployment, url).finally(() => http.close());
}

/** Reports whether a process serves the app. Builds and the SDK's command line create Worlds too. */
export function servesApp({ argv, env }) {
  // SvelteKit's build prerenders in threads, which it marks and which do not have the arguments of the build.
  const builds = env.NEXT_PHASE === 'phase-production-build' || env.SVELTEKIT_FORK === 'true' || argv[2] === 'build';
  return !builds && !COMMAND_LINE.test(argv[1] ?? '');
}

async function keepTrying(http, deployment, url) {
  for (let attempt = 0; ; attempt++) {
    const err = await put(http, deployment, url).then(() => undefined, (err) => err);
    if (!err) return;
    if (!isTemporary(err)) {
      return report(`the server refused to register deployment ${deployment} at ${url}: ${err.message}. ${remedy(err, deployment, url)}`);
    }
    if (attempt === 0) report(`cannot register deployment ${deployment} at ${url} yet, and keeps trying: ${err.message}`);
    await unobtrusivePause(PAUSES_MS[Math.min(attempt, PAUSES_MS.length - 1)]);
  }
}

/** Registers the deployment. A key that may not do so is enough if the deployment is registered as it should be. */
async function put(http, deployment, url) {
  const path = `/deployments/${encodeURIComponent(deployment)}`;
  const options = { body: JSON.stringify({ url }), headers: { 'content-type': 'application/json' }, timeout: TIMEOUT_MS };
  try {
    await http.request('PUT', path, options);
  } catch (err) {
    if (err.status !== 403) throw err;
    const registered = await http.get(path).catch(() => undefined);
    if (registered?.url !== url) throw err;
  }
}

function isTemporary({ status }) {
  return status === undefined || status === 429 || status >= 500;
}

function remedy({ status }, deployment, url) {
  switch (status) {
    case 401:
      return 'Set STEPWELL_API_KEY to a valid key.';
    case 403:
      return `Register it once with a key of the role admin: stepwell deployments add ${deployment} ${url}`;
    default:
      return 'Correct STEPWELL_APP_URL, which is the base URL of this app as the server reaches it, or unset it.';
  }
}

export function report(sentence) {
  console.error(`[@stepwell/world] ${sentence}`);
}

/** A pause that does not keep the process alive. */
function unobtrusivePause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}
