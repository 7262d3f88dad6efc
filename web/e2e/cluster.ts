// The platform as it runs for real, for the same browser tests: three NATS servers, two nodes per account, and a service per
// region on them. There is no world to move: that is a simulation, and these are processes.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Service } from './platform';

const REGIONS = [
  { name: 'West US', tag: 'usa' },
  { name: 'North Europe', tag: 'europe' },
  { name: 'Southeast Asia', tag: 'asia' },
];
const N_SERVERS = 3;
const N_NODES = 2;
const READY_MS = 120_000;
const PAUSE_MS = 100;

interface Account {
  endpoint: string;
  key: string;
}

export interface Running {
  services: Service[];
  stop: () => Promise<void>;
}

/** Starts everything; nothing is left running when that fails. */
export async function startCluster(binary: string): Promise<Running> {
  const scratch = mkdtempSync(join(tmpdir(), 'orrery-e2e-'));
  const children: ChildProcess[] = [];
  const stop = async () => {
    await Promise.all(children.map(kill));
    rmSync(scratch, { recursive: true });
  };
  const start = (name: string, program: string, flags: string[]) => {
    const cwd = join(scratch, name);
    mkdirSync(cwd, { recursive: true });
    const log = openSync(join(cwd, 'log'), 'w');
    const child = spawn(program, flags, { cwd, env: plainEnvironment(), stdio: ['ignore', 'pipe', log] });
    children.push(child);
    return child;
  };
  try {
    const servers = await startServers(scratch, start);
    let accounts = '';
    for (const { name, tag } of REGIONS) {
      const flags = ['node', '--port', '0', '--partitions', '2', '--region', name, '--account', `orrery-${tag}`];
      let account: Account | undefined;
      // One after the other: the first coordinates, and the platform talks to the last.
      for (let idx = 0; idx < N_NODES; idx++) {
        const ready = await firstLine(start(`${tag}-${idx}`, binary, [...flags, ...servers]));
        account = (JSON.parse(ready) as { accounts: Account[] }).accounts[0];
      }
      accounts += accountEntry(name, tag, account!);
    }
    const ports = await freePorts(REGIONS.length);
    const services = REGIONS.map(({ name }, idx) => ({ name, url: `http://localhost:${ports[idx]}/` }));
    const file = join(scratch, 'platform.toml');
    writeFileSync(file, accounts + services.map(serviceEntry).join(''));
    for (const [idx, { name, tag }] of REGIONS.entries()) {
      const flags = ['platform', '--accounts', file, '--region', name, '--port', String(ports[idx])];
      await firstLine(start(`platform-${tag}`, binary, [...flags, '--development', '--instance', `e2e-${tag}`]));
    }
    for (const { url } of services) await untilWell(new URL('/readyz', url));
    return { services, stop };
  } catch (problem) {
    await stop();
    throw problem;
  }
}

type Start = (name: string, program: string, flags: string[]) => ChildProcess;

/** Answers the flags by which nodes find the servers. */
async function startServers(scratch: string, start: Start): Promise<string[]> {
  const program = process.env['NATS_SERVER'] ?? join(import.meta.dirname, '../../.tools/bin/nats-server');
  const ports = await freePorts(3 * N_SERVERS);
  const [clients, monitors, routes] = [0, 1, 2].map((kind) => ports.slice(kind * N_SERVERS, (kind + 1) * N_SERVERS));
  const peers = routes!.map((port) => `"nats://127.0.0.1:${port}"`).join(', ');
  for (let idx = 0; idx < N_SERVERS; idx++) {
    const config = join(scratch, `nats-${idx}.conf`);
    writeFileSync(
      config,
      `server_name: n${idx + 1}
listen: "127.0.0.1:${clients![idx]}"
http: "127.0.0.1:${monitors![idx]}"
max_payload: 8388608
jetstream { store_dir: "${scratch}/nats-${idx}", sync_interval: always }
cluster { name: orrery, listen: "127.0.0.1:${routes![idx]}", routes: [${peers}] }
`,
    );
    start(`server-${idx}`, program, ['-c', config]);
  }
  for (const port of monitors!) await untilWell(new URL(`http://127.0.0.1:${port}/healthz`));
  const urls = clients!.map((port) => `nats://127.0.0.1:${port}`).join(',');
  return ['--nats', urls, '--monitor', monitors!.map((port) => `127.0.0.1:${port}`).join(',')];
}

function accountEntry(region: string, tag: string, { endpoint, key }: Account): string {
  const others = REGIONS.map(({ name }) => name).filter((name) => name !== region);
  return `[[accounts]]
name = "orrery-${tag}"
tag = "${tag}"
endpoint = "${endpoint}"
key = "${key}"
write-region = "${region}"
read-regions = ${JSON.stringify(others)}
`;
}

function serviceEntry({ name, url }: Service): string {
  return `[[services]]\nregion = "${name}"\nurl = "${url}"\n`;
}

/** The server takes any ORRERY_ variable for a setting, and ours are not meant for it. */
function plainEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ORRERY_')));
}

function firstLine(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`no ready line within ${READY_MS} ms`)), READY_MS);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`${child.spawnargs.join(' ')} ended with ${code}`)));
    createInterface({ input: child.stdout! }).once('line', (line) => {
      clearTimeout(late);
      resolve(line);
    });
  });
}

async function untilWell(url: URL): Promise<void> {
  const deadline = Date.now() + READY_MS;
  while (!(await isWell(url))) {
    if (Date.now() > deadline) throw new Error(`${url.href} is not well`);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function isWell(url: URL): Promise<boolean> {
  try {
    return (await fetch(url)).ok;
  } catch {
    return false;
  }
}

/** Ports that were free a moment ago, all different. */
async function freePorts(n: number): Promise<number[]> {
  const listening = Array.from({ length: n }, async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return server;
  });
  const held = await Promise.all(listening);
  const ports = held.map((server) => (server.address() as AddressInfo).port);
  await Promise.all(held.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGKILL');
  await ended;
}
