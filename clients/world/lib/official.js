// The World on the SDK's own HTTP client (STEPWELL_CLIENT=official).
import { Commits } from './commits.js';
import { FENCE_SPEC, withFence } from './fence.js';
import { Http } from './http.js';
import { fail, refuseUnknownVersion, requireFromSdk, USER_AGENT } from './sdk.js';

// The client uses another backend than the hosted one only if it has a project and a team. Stepwell identifies
// projects by API key, so both are constants, in a form that the client's tools accept.
const PROJECT = { projectId: 'prj_stepwell', teamId: 'team_stepwell', environment: 'production' };

/** What the client declares of every server. What is declared and not served fails in the middle of a run. */
const NOT_ON_STEPWELL = {
  // The SDK assumes that a deployment is one immutable build. On Stepwell, a deployment name is stable across builds, and
  // the operator decides which app serves it: an app that receives another deployment's run is meant to take it over.
  // With this capability on, the SDK would send the run back, and finally fail it.
  deploymentAffinity: false,
  // The server stores no code of a workflow with its run, and gives each event the time of its own clock.
  dynamicWorkflowCode: undefined,
  inBandEventTime: undefined,
};

/** @param settings what configure returns */
export function createOfficialWorld(settings) {
  const client = requireFromSdk('@workflow/world-vercel');
  const world = (client.createWorld ?? client.createVercelWorld)({
    // The client requires a token even if the server does not.
    token: settings.key || 'none',
    projectConfig: PROJECT,
  });
  refuseUnknownVersion(world.specVersion);
  if (process.env.STEPWELL_SIGNING_KEYS) {
    throw fail('STEPWELL_SIGNING_KEYS is set, but the official client does not verify signatures. Unset it, or unset STEPWELL_CLIENT.');
  }
  refuseDevelopmentMode(world.specVersion);
  const own = {
    // This includes specVersion: the SDK stores it in each run, and refuses a World with another one.
    ...world,
    ...(world.capabilities && { capabilities: { ...world.capabilities, ...NOT_ON_STEPWELL } }),
    // Both would call the hosted service at a fixed address with our token. Without them, the SDK does not encrypt,
    // and resolves deployment "latest" to the current one.
    getEncryptionKeyForRun: undefined,
    resolveLatestDeploymentId: undefined,
  };
  if (!(world.specVersion >= FENCE_SPEC)) return own;
  const http = new Http({ ...settings, errors: requireFromSdk('@workflow/errors'), userAgent: USER_AGENT, unref: true });
  return withFence(own, new Commits(http));
}

// On the 4.x line (spec version 3), the queue client omits the deployment from messages if NODE_ENV is
// "development". No server can route such messages, so fail early instead of leaving runs stuck.
function refuseDevelopmentMode(specVersion) {
  if (process.env.NODE_ENV === 'development' && !(specVersion > 3)) {
    throw fail(
      'NODE_ENV is "development", and in that mode the official client of Workflow SDK 4 sends messages that no ' +
        'server can route. Use another NODE_ENV, or the own client (unset STEPWELL_CLIENT).',
    );
  }
}
