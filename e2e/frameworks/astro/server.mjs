import { getWorld } from 'workflow/runtime';

await getWorld();
await import('./dist/server/entry.mjs');
