import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

// `npm run dev` talks to LORENTZ_WEB, a server that runs, or to the fixtures of dev/mock.mjs.
const server = process.env.LORENTZ_WEB ?? 'http://127.0.0.1:5199';

export default defineConfig({
  plugins: [svelte()],
  base: './',
  build: {
    target: 'es2022',
    // The content security policy of the server allows no data: URLs.
    assetsInlineLimit: 0,
    manifest: 'manifest.json',
    // The licences of all that is inside the page.
    license: { fileName: 'licenses.txt' },
    modulePreload: { polyfill: false },
  },
  worker: { format: 'es' },
  // The server accepts its own address alone, as Host and as Origin.
  server: {
    proxy: { '/api': { target: server, ws: true, changeOrigin: true, headers: { origin: server } } },
  },
  test: { include: ['test/**/*.test.ts'], pool: 'threads', isolate: false, fileParallelism: false },
});
