import { createOfficialWorld } from './lib/official.js';
import { createOwnWorld } from './lib/own.js';
import { pull, pullMode } from './lib/pull.js';
import { register } from './lib/registration.js';
import { configure, fail } from './lib/sdk.js';

const CLIENTS = { own: createOwnWorld, official: createOfficialWorld };

/** The World of a Stepwell server, configured from the environment (see the README). */
export function createWorld() {
  const name = process.env.STEPWELL_CLIENT || 'own';
  if (!Object.hasOwn(CLIENTS, name)) throw fail(`STEPWELL_CLIENT is "${name}": set it to own or official, or unset it.`);
  const settings = configure();
  const world = CLIENTS[name](settings);
  const { mode } = pullMode(process.env);
  if (mode === 'asked' && name !== 'own') throw fail('STEPWELL_PULL needs the own client: unset STEPWELL_CLIENT.');
  if (mode !== 'asked') register(settings);
  if (name === 'own') pull(settings);
  return world;
}

export default createWorld;
