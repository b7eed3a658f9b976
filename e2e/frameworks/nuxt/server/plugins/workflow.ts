import { getWorld } from 'workflow/runtime';

export default defineNitroPlugin(async () => {
  await getWorld();
});
