import { existsSync } from 'node:fs';
import node from '@astrojs/node';
import { defineConfig } from 'astro/config';
import { workflow } from 'workflow/astro';

if (existsSync('.env')) process.loadEnvFile();

export default defineConfig({
  adapter: node({ mode: 'standalone' }),
  integrations: [workflow()],
});
