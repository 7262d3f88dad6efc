// How the application is built: one script, one style sheet, and a content security policy that allows nothing inline.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** The other regions' services live at addresses that only the running platform knows, hence `http: https:`. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self' http: https:",
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');

/** Only in what is built: the development server injects styles for hot replacement. */
function contentSecurityPolicy(): Plugin {
  return {
    name: 'content-security-policy',
    apply: 'build',
    transformIndexHtml: () => [
      {
        tag: 'meta',
        attrs: { 'http-equiv': 'Content-Security-Policy', content: POLICY },
        injectTo: 'head-prepend',
      },
    ],
  };
}

const PLATFORM = process.env['ORRERY_URL'] ?? 'http://localhost:8080';

export default defineConfig({
  base: './',
  plugins: [svelte(), contentSecurityPolicy()],
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: false, reportCompressedSize: false },
  server: { proxy: { '/v1': { target: PLATFORM, changeOrigin: true } } },
  test: { include: ['src/**/*.test.ts'], environment: 'node' },
});
