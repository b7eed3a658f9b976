import { existsSync } from 'node:fs';
import adapter from '@sveltejs/adapter-node';
import { sveltekit } from '@sveltejs/kit/vite';
import { defineConfig } from 'vite';
import { workflowPlugin } from 'workflow/sveltekit';

if (existsSync('.env')) process.loadEnvFile();

export default defineConfig({
  plugins: [workflowPlugin(), sveltekit({ adapter: adapter() })],
});
