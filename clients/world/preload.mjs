// node --import @stepwell/world/preload: installs the World without a change to the app or its build.
//
// The SDK reads these global properties before it creates a World. The getters create ours lazily, because
// NODE_OPTIONS applies to every Node process (npm, npx, builds), and those have neither a World nor its
// settings.
import { createWorld } from './index.js';

const PLACES = ['@workflow/world//cache', '@workflow/world//stubbedCache'].map((name) => Symbol.for(name));

let world;

for (const place of PLACES) {
  Object.defineProperty(globalThis, place, {
    configurable: true,
    get: () => (world ??= createWorld()),
    // setWorld() writes here, and thereby replaces the accessor with a plain property.
    set: (value) => Object.defineProperty(globalThis, place, { value, writable: true, configurable: true }),
  });
}
