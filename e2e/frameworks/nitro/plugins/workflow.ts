import { definePlugin } from 'nitro';
import { getWorld } from 'workflow/runtime';

export default definePlugin(async () => {
  await getWorld();
});
