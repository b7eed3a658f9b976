// node --import @stepwell/world/preload: gives the SDK its World without a change to app or build.
//
// The SDK looks for a World in these places before it makes one. Ours is made at the first look,
// because NODE_OPTIONS reaches every Node process of the command line (npm, npx, builds), and those
// need neither a World nor its settings.
import { createWorld } from './index.js';

const PLACES = ['@workflow/world//cache', '@workflow/world//stubbedCache'].map((name) => Symbol.for(name));

let world;

for (const place of PLACES) {
  Object.defineProperty(globalThis, place, {
    configurable: true,
    get: () => (world ??= createWorld()),
    // setWorld() writes here. From then on the place is an ordinary property.
    set: (value) => Object.defineProperty(globalThis, place, { value, writable: true, configurable: true }),
  });
}
