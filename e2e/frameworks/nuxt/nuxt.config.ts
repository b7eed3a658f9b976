export default defineNuxtConfig({
  modules: ['workflow/nuxt'],
  compatibilityDate: '2026-11-30',
});
