// The World under test. Each test of the suite starts its own app, whose port is known only once it listens. So each
// app is its own deployment, and registers its URL with the server when it starts.
import { createWorld as createStepwellWorld } from '@stepwell/world';

export function createWorld() {
  process.env.STEPWELL_DEPLOYMENT_ID ??= `conformance-${process.pid}`;
  const world = createStepwellWorld();
  return {
    ...world,
    async start() {
      exitWithParent();
      await world.start?.();
      await register(process.env.STEPWELL_DEPLOYMENT_ID, `http://127.0.0.1:${process.env.PORT}`);
    },
  };
}

// The suite stops its apps. If the suite is killed, the apps must end by themselves.
function exitWithParent() {
  const parent = process.ppid;
  setInterval(() => process.ppid === parent || process.exit(1), 1000).unref();
}

async function register(deployment, url) {
  const answer = await fetch(`${process.env.STEPWELL_URL}/v1/deployments/${deployment}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${process.env.STEPWELL_API_KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ url }),
  });
  if (!answer.ok) throw new Error(`register ${deployment}: ${answer.status} ${await answer.text()}`);
}
