export default defineNuxtConfig({
  modules: ['workflow/nuxt'],
  compatibilityDate: '2026-11-30',
  nitro: {
    externals: { inline: ['@workflow/'] },
    replace: { 'process.env.DEBUG': "process.env['DEBUG']" },
  },
});
