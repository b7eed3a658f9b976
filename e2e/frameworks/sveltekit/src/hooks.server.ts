import { getWorld } from 'workflow/runtime';

export async function init() {
  await getWorld();
}
