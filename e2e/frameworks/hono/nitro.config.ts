import { defineConfig } from 'nitro';

export default defineConfig({
  modules: ['workflow/nitro'],
  plugins: ['./plugins/workflow.ts'],
  routes: { '/**': './src/index.ts' },
});
