import { createOfficialWorld } from './lib/official.js';
import { createOwnWorld } from './lib/own.js';
import { register } from './lib/registration.js';
import { configure, fail } from './lib/sdk.js';

const CLIENTS = { own: createOwnWorld, official: createOfficialWorld };

/** The World of a Stepwell server, configured from the environment (see the README). */
export function createWorld() {
  const name = process.env.STEPWELL_CLIENT || 'own';
  if (!Object.hasOwn(CLIENTS, name)) throw fail(`STEPWELL_CLIENT is "${name}": set it to own or official, or unset it.`);
  const settings = configure();
  const world = CLIENTS[name](settings);
  register(settings);
  return world;
}

export default createWorld;
