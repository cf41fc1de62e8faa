// Serves the built page, and the server's resources from fixtures, for work on the page without root.
// `node dev/mock.mjs [PORT] [NODES...]`: a network of NODES nodes for each.

import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { added, changed, now, state as made, topology, topologyOf } from './fixtures.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const dist = join(here, '..', 'dist');
const schema = join(here, '..', '..', 'docs', 'network.schema.json');
const [port = '5199', ...sizes] = process.argv.slice(2);

const state = made(sizes.map(Number));
const files = new Map([['lab.yaml', topology]]);
const streams = new Set();

const POLICY =
  "default-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
};

function json(response, value, status = 200) {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
}

async function body(request) {
  let text = '';
  for await (const chunk of request) text += chunk;
  return text;
}

function tell(change) {
  state.seq += 1;
  const data = JSON.stringify({
    seq: state.seq,
    now: now(),
    networks: {},
    experiments: {},
    containers: {},
    ...change,
  });
  for (const stream of streams) stream.write(`event: change\nid: ${state.seq}\ndata: ${data}\n\n`);
}

/** Changes the nodes and links of a network. */
function edit(act, network) {
  const has = (link, end) => link.directions.some((way) => way.from === end);
  if (act.do === 'link-add') {
    const taken = [act.end, act.other].find((end) => network.links.some((link) => has(link, end)));
    if (taken) return `lorentz: ${taken}: has a link already; expected another interface`;
  }
  added(network, act);
  if (act.do === 'link-rm') network.links = network.links.filter((link) => !has(link, act.end));
  if (act.do === 'node-rm') {
    const isOther = (one) => one.name !== act.name;
    network.nodes = network.nodes.filter(isOther);
    network.switches = network.switches.filter(isOther);
    network.links = network.links.filter(
      (link) => !link.directions.some((way) => way.from.startsWith(`${act.name}:`)),
    );
  }
  tell({ networks: { [act.network]: network } });
  return null;
}

/** Changes the clock of a network or container, as the commands would. */
function apply(act) {
  const edited = state.networks.find((one) => one.name === act.network);
  if (edited && /^(node|link)-/.test(act.do)) return edit(act, edited);
  const network = state.networks.find((one) => one.name === act.name);
  const target = network ?? state.containers.find((one) => one.name === act.name);
  if (!target?.clock) return `no container ${act.name}`;
  const rate = act.tdf ? [1, Number(act.tdf)] : [Math.round(Number(act.rate) * 1000), 1000];
  const over = {
    dilate: { rate },
    freeze: { frozen: true },
    unfreeze: { frozen: false },
    skip: { skips_idle: act.on },
  };
  target.clock = changed(target.clock, over[act.do] ?? {});
  if (act.do === 'leap') target.clock.v0_ns = String(BigInt(target.clock.v0_ns) + 60_000_000_000n);
  tell(network ? { networks: { [act.name]: network } } : { containers: { [act.name]: target } });
  return null;
}

function commandOf(act) {
  const rest = Object.entries(act).filter(([key]) => !['do', 'name', 'network', 'dry'].includes(key));
  const words = rest.map(
    ([key, value]) => `--${key} ${typeof value === 'object' ? JSON.stringify(value) : value}`,
  );
  return ['lorentz', act.do, act.name ?? act.network, ...words].filter(Boolean).join(' ');
}

function stream(response) {
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  response.write(`event: state\nid: ${state.seq}\ndata: ${JSON.stringify({ ...state, now: now() })}\n\n`);
  streams.add(response);
  const tick = setInterval(() => response.write(`event: tick\ndata: ${JSON.stringify(now())}\n\n`), 5000);
  response.on('close', () => {
    clearInterval(tick);
    streams.delete(response);
  });
}

function history() {
  const points = Array.from({ length: 240 }, (_, index) => ({
    real_ns: String(index * 1_000_000_000),
    virtual_ns: String(index * 100_000_000),
    rate: index < 100 ? 0.1 : 0.05,
    lateness_p99_ns: 2e6 + 1e6 * Math.sin(index / 9),
    behind_ns: 1e6 * Math.abs(Math.sin(index / 30)),
    cpu: 0.3 + 0.1 * Math.cos(index / 14),
  }));
  return { points };
}

async function api(request, response, url) {
  const path = url.pathname.slice('/api/v1/'.length);
  const at = path.split('/').map(decodeURIComponent);
  if (path === 'session') return json(response, { change_token: 'mock' });
  if (path === 'about')
    return json(response, {
      version: '0.0.0',
      dir: '/srv/labs',
      read_only: false,
      user: 'root',
      host: 'bench',
      cpus: 2,
      max_terminals: 16,
    });
  if (path === 'live') return stream(response);
  if (path === 'state') return json(response, { ...state, now: now() });
  if (path === 'history') return json(response, history());
  if (path === 'schema') return response.end(await readFile(schema));
  if (path === 'check') return json(response, { errors: [], warnings: [] });
  if (at[2] === 'topology') {
    const network = state.networks.find((one) => one.name === at[1]);
    return network ? response.end(topologyOf(network)) : json(response, { error: 'no such network' }, 404);
  }
  if (path === 'files') {
    const listed = [...files].map(([name, text]) => ({
      path: name,
      kind: 'topology',
      name: 'lab',
      bytes: text.length,
      modified_ns: now().wall_ns,
      running: false,
    }));
    return json(response, [
      ...listed,
      {
        path: 'old/ospf.imn',
        kind: 'scenario',
        name: null,
        bytes: 9120,
        modified_ns: now().wall_ns,
        running: false,
      },
    ]);
  }
  if (at[0] === 'files') return file(request, response, at.slice(1).join('/'));
  if (path === 'do') {
    const act = JSON.parse(await body(request));
    const error = act.dry ? null : apply(act);
    return json(response, { command: commandOf(act), status: error ? 1 : 0, output: '', error: error ?? '' });
  }
  if (at[2] === 'waits')
    return json(response, [
      {
        pid: 6000,
        tid: 6001,
        thread: 'bio_close',
        command: 'redis-server',
        call: 'futex',
        on: '0x7f1c1d2a',
        until_ns: String(1060n * 1_000_000_000n),
        remaining_ns: '60000000000',
      },
    ]);
  if (at[4] === 'output') return json(response, { text: 'Server listening on 5201\n', next: 25, end: 25 });
  return json(response, { error: `no resource ${path}` }, 404);
}

async function file(request, response, name) {
  const etag = () => `"${files.get(name)?.length ?? 0}"`;
  if (request.method === 'PUT') {
    files.set(name, await body(request));
    return json(response, { etag: etag() });
  }
  if (!files.has(name)) return json(response, { error: `no file ${name}` }, 404);
  return response.writeHead(200, { 'Content-Type': 'text/plain', ETag: etag() }).end(files.get(name));
}

createServer(async (request, response) => {
  const url = new URL(request.url, 'http://mock');
  response.setHeader('Content-Security-Policy', POLICY);
  try {
    if (url.pathname.startsWith('/api/')) return await api(request, response, url);
    const path = normalize(url.pathname === '/' ? '/index.html' : url.pathname);
    response.setHeader('Content-Type', TYPES[extname(path)] ?? 'application/octet-stream');
    return response.end(await readFile(join(dist, path)));
  } catch (error) {
    return json(response, { error: String(error) }, 404);
  }
}).listen(Number(port), '127.0.0.1', function () {
  console.log(`http://127.0.0.1:${this.address().port}/`);
});
