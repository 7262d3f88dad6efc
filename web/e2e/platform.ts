// Starts `orrery up` for the browser tests and gives them the addresses of its ready line. `ORRERY_BIN` names the binary. With
// `ORRERY_TEST_CLUSTER` they meet services on clusters instead.
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { TestProject } from 'vitest/node';
import { startCluster } from './cluster';

export interface Service {
  name: string;
  url: string;
}

declare module 'vitest' {
  export interface ProvidedContext {
    services: Service[];
  }
}

const READY_MS = 60_000;

export default async function start(project: TestProject): Promise<() => Promise<void>> {
  const binary = process.env['ORRERY_BIN'];
  if (!binary) throw new Error('set ORRERY_BIN to the orrery binary whose platform is to be tested');
  if (process.env['ORRERY_TEST_CLUSTER']) {
    const { services, stop } = await startCluster(binary);
    project.provide('services', services);
    return stop;
  }
  const process_ = spawn(binary, ['up', '--memory', '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    project.provide('services', await readyLine(process_));
  } catch (problem) {
    process_.kill('SIGKILL');
    throw problem;
  }
  return () => stop(process_);
}

function readyLine(child: ChildProcess): Promise<Service[]> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`no ready line within ${READY_MS} ms`)), READY_MS);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`orrery up ended with ${code} before it was ready`)));
    createInterface({ input: child.stdout! }).on('line', (line) => {
      const ready = JSON.parse(line) as { event?: string; platform?: { regions: Service[] } };
      if (ready.event !== 'ready') return;
      clearTimeout(late);
      if (ready.platform) resolve(ready.platform.regions);
      else reject(new Error('the ready line names no platform'));
    });
  });
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
  await ended;
  clearTimeout(late);
}
