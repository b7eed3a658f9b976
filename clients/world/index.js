import { createOfficialWorld } from './lib/official.js';
import { createOwnWorld } from './lib/own.js';
import { fail } from './lib/sdk.js';

const CLIENTS = { own: createOwnWorld, official: createOfficialWorld };

/** The World of a Stepwell server, configured from the environment (see the README). */
export function createWorld() {
  const name = process.env.STEPWELL_CLIENT || 'own';
  if (!Object.hasOwn(CLIENTS, name)) throw fail(`STEPWELL_CLIENT is "${name}": set it to own or official, or unset it.`);
  return CLIENTS[name]();
}

export default createWorld;
