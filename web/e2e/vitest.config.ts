// Browser tests against a running platform. One file at a time: they share one world, and cut its links.
import { defineConfig } from 'vitest/config';

// As the tests see it, in `seed.ts`.
const hasWorld = !process.env['ORRERY_TEST_CLUSTER'];

export default defineConfig({
  root: import.meta.dirname,
  test: {
    include: ['**/*.e2e.ts'],
    exclude: hasWorld ? [] : ['world.e2e.ts'],
    globalSetup: ['./platform.ts'],
    environment: 'node',
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
