// The World on Stepwell's own client: docs/protocol.md §11.
import { createAnalytics } from './analytics.js';
import { clock, ulid } from './clock.js';
import { Commits } from './commits.js';
import { FENCE_SPEC, withFence } from './fence.js';
import { Http } from './http.js';
import { Logs } from './logs.js';
import { createQueue } from './queue.js';
import { refuseUnknownVersion, requireFromSdk, USER_AGENT } from './sdk.js';
import { createLog, createStorage } from './storage.js';
import { createStreamer } from './streams.js';

const TIME_TIMEOUT_MS = 2000;

// The SDK creates two Worlds in each process. They share what is known of logs, and the connections until both are
// closed.
const shared = (globalThis[Symbol.for('@stepwell/world//shared/1')] ??= { logs: new Logs() });

/** @param settings what configure returns */
export function createOwnWorld(settings) {
  const { deployment } = settings;
  const errors = requireFromSdk('@workflow/errors');
  const sdk = requireFromSdk('@workflow/world');
  const specVersion = sdk.mintedSpecVersion?.() ?? sdk.SPEC_VERSION_CURRENT;
  refuseUnknownVersion(specVersion);

  const http = new Http({ ...settings, errors, userAgent: USER_AGENT });
  const commits = new Commits(http);
  const log = createLog({ http, logs: shared.logs });
  const world = {
    specVersion,
    ...createQueue({ http, commits, log, deployment, specVersion }),
    ...createStorage({ http, commits, log, errors, specVersion }),
    ...createStreamer(http, specVersion),
    ...extras({ ...settings, http, errors, specVersion }),
    close: async () => http.close(),
  };
  return specVersion >= FENCE_SPEC ? withFence(world, commits) : world;
}

let asking; // for the time

/** Asks the server for the time. If that is away, the clock of this process has to do. */
async function tellTime({ base, errors }) {
  const http = new Http({ base: base.replace(/\/sdk$/, ''), errors, userAgent: USER_AGENT });
  await http.request('GET', '/healthz', { once: true, timeout: TIME_TIMEOUT_MS }).catch(() => {});
  http.close();
}

function extras({ http, base, deployment, errors, specVersion }) {
  if (specVersion < 5) return {};
  return {
    // The time of an ID is that of the workflow until its first event. By a wrong clock, it would jump then.
    createRunId: () => ulid(clock.now()),
    // The SDK asks for this before it makes an ID.
    async getDeploymentId() {
      if (!clock.known) await (asking ??= tellTime({ base, errors }).finally(() => (asking = undefined)));
      return deployment;
    },
    analytics: process.env.WORKFLOW_DISABLE_ANALYTICS_READS === '1' ? undefined : createAnalytics(http),
    // The server delivers a message again when the process dies (beta.35 asks for it).
    processExitTriggersQueueRedelivery: true,
    // Without deploymentAffinity: a deployment name is stable across builds, and the operator decides which app serves
    // it. An app that receives another deployment's run is meant to take it over.
    capabilities: {
      hookRetention: { active: true }, maxConcurrency: true, deploymentAffinity: false,
      hookForceClaim: specVersion >= 8 || undefined,
    },
  };
}
