// A state of the server with everything in it: a network of routers, one of many nodes, an experiment, containers.

const SECOND = 1_000_000_000n;

const monotonic = () => process.hrtime.bigint();
const wall = () => BigInt(Date.now()) * 1_000_000n;

export const now = () => ({ real_ns: String(monotonic()), wall_ns: String(wall()) });

export function clock(rate, over = {}) {
  const real = monotonic();
  return {
    r0_ns: String(real),
    v0_ns: String(1000n * SECOND),
    rate,
    limit_ns: null,
    wall_offset_ns: String(wall() - 1000n * SECOND),
    boot_offset_ns: '0',
    frozen: false,
    skips_idle: false,
    pending: [],
    error: null,
    ...over,
  };
}

/** The clock with its segment begun anew, at another rate. */
export function changed(before, over) {
  const real = monotonic();
  const [numerator, denominator] = before.frozen ? [0, 1] : before.rate;
  const v0 = BigInt(before.v0_ns) + ((real - BigInt(before.r0_ns)) * BigInt(numerator)) / BigInt(denominator);
  return { ...before, r0_ns: String(real), v0_ns: String(v0), ...over };
}

const none = {
  rate: null,
  delay: null,
  jitter: null,
  loss: null,
  duplicate: null,
  reorder: null,
  corrupt: null,
  queue_packets: null,
  queue_bytes: null,
};

function direction(from, to, impairments, utilisation, dropped = 0) {
  return {
    from,
    to,
    utilisation,
    bits_per_second: 1e6,
    queued: dropped ? 40 : 0,
    in_flight: 2,
    impairments: { ...none, ...impairments },
    counts: { sent: 12043, delivered: 12040 - dropped, lost: 3, dropped, bytes: 17_000_000 },
  };
}

function link(a, b, impairments, utilisation = 0.1, dropped = 0) {
  return {
    id: `${a} - ${b}`,
    up: true,
    mtu: 1500,
    directions: [
      direction(a, b, impairments, utilisation, dropped),
      direction(b, a, impairments, (utilisation ?? 0) / 4),
    ],
  };
}

function node(network, name, position, over = {}) {
  return {
    name,
    container: `${network}.${name}`,
    output_bytes: 220,
    position,
    clock: null,
    tdf: null,
    lag_ns: null,
    cpu_share: null,
    ...over,
  };
}

function lab() {
  const inRounds = (tdf, wanted, got) => ({
    tdf,
    lag_ns: Math.round(2e6 * tdf),
    cpu_share: { wanted, got },
    clock: clock([1, tdf]),
  });
  return {
    name: 'campus',
    clock: clock([1, 10]),
    started_ns: String(990n * SECOND),
    virtual_ns: String(10n * SECOND),
    rounds: { count: 4211, behind_ns: 3_100_000, ended: null },
    nodes: [
      node('campus', 'client', [0, 120], inRounds(10, 0.2, 0.2)),
      node('campus', 'r1', [190, 120], inRounds(10, 0.35, 0.35)),
      node('campus', 'r2', [380, 20], inRounds(20, 0.9, 0.55)),
      node('campus', 'r3', [380, 220], inRounds(10, 0.15, 0.15)),
      node('campus', 'server', [720, 120], inRounds(10, 0.5, 0.49)),
    ],
    switches: [{ name: 'lan', kind: 'switch', position: [560, 120] }],
    links: [
      link('client:eth0', 'r1:eth0', { rate: '100mbit', delay: '2ms' }, 0.3),
      link('r1:eth1', 'r2:eth0', { rate: '10mbit', delay: '5ms' }, 0.97, 412),
      link('r1:eth2', 'r3:eth0', { rate: '1gbit', delay: '12ms', loss: '0.1%' }, 0.02),
      link('r2:eth1', 'lan:1', { rate: '1gbit', delay: '1ms' }, 0.12),
      { ...link('r3:eth1', 'lan:2', { rate: '1gbit', delay: '1ms' }, 0), up: false },
      link('server:eth0', 'lan:3', { rate: '1gbit', delay: '1ms' }, 0.5),
    ],
    lateness: { count: 88123, median_ns: 41_000, p99_ns: 3_200_000, max_ns: 9_000_000 },
    emulator: { pid: 4242, cpu_share: 0.31 },
    verdict: {
      word: 'late',
      text: '1 of 100 frames is late by 3.2ms or more; the shortest delay is 1ms',
      advice: 'raise the TDF to 40',
    },
    changes_to_come: 2,
    schedule: [
      { at_ns: String(30n * SECOND), what: 'client:eth0: delay 80ms' },
      { at_ns: String(45n * SECOND), what: 'r3:eth1: up' },
    ],
  };
}

/** A grid without positions: `count` nodes on one clock. */
function grid(name, count) {
  const side = Math.ceil(Math.sqrt(count));
  const nodes = Array.from({ length: count }, (_, index) => node(name, `n${index}`, null));
  const links = [];
  for (let index = 0; index < count; index += 1) {
    if (index % side !== side - 1 && index + 1 < count)
      links.push(link(`n${index}:e`, `n${index + 1}:w`, { rate: '10mbit', delay: '1ms' }, (index % 10) / 10));
    if (index + side < count)
      links.push(link(`n${index}:s`, `n${index + side}:n`, { rate: '1gbit', delay: '1ms' }, 0));
  }
  return {
    name,
    clock: clock([1, 1]),
    rounds: null,
    started_ns: String(1000n * SECOND),
    virtual_ns: '0',
    nodes,
    switches: [],
    links,
    lateness: { count: 1000, median_ns: 12_000, p99_ns: 90_000, max_ns: 200_000 },
    emulator: { pid: 4243, cpu_share: 0.08 },
    verdict: {
      word: 'keeps up',
      text: 'Keeps up: 99 of 100 frames are less than 0.1 ms late.',
      advice: null,
    },
    changes_to_come: 0,
    schedule: [],
  };
}

function experiment() {
  const container = (name, tdf, wanted, got) => ({
    name,
    tdf,
    timeline: 1,
    virtual_ns: String(7_100_000_000n),
    stopped: false,
    cpu_wanted_ns: wanted,
    cpu_got_ns: got,
    cpu_share: { wanted: wanted / 7.1e9, got: got / 7.1e9 },
    overrun_median_ns: 12_000,
    overrun_p99_ns: 240_000,
    perceived_overshoot_ns: 24_000,
  });
  return {
    name: 'pair',
    phase: 'running',
    pid: 5001,
    timeslice_ns: 2_000_000,
    rounds: 7100,
    virtual_ns: String(7_100_000_000n),
    slowdown: 2.4,
    cpus: '0-1',
    containers: [container('left', 1, 4.1e9, 4.1e9), container('right', 10, 6e9, 3.9e9)],
    verdict: { word: 'keeps up', text: 'Keeps up: each round ends in time.', advice: null },
  };
}

function container(name, over) {
  return {
    name,
    pid: 6000,
    command: ['redis-server', '--port', '7000'],
    state: 'runs',
    clock: clock([2, 1]),
    network: null,
    node: null,
    experiment: null,
    tasks: 5,
    cpu_ns: 1_200_000_000,
    leaps: null,
    ...over,
  };
}

export function state(sizes) {
  const networks = [lab(), ...sizes.map((size) => grid(`grid${size}`, size))];
  const inside = networks.flatMap((network) =>
    network.nodes.slice(0, 20).map((one) =>
      container(one.container, {
        network: network.name,
        node: one.name,
        clock: one.clock ?? network.clock,
        command: ['/bin/sh'],
        tasks: 1,
      }),
    ),
  );
  return {
    seq: 1,
    now: now(),
    networks,
    experiments: [experiment()],
    containers: [
      container('cache', {}),
      container('night', {
        state: 'frozen',
        clock: clock([1, 1], { frozen: true }),
        command: ['python3', 'batch.py'],
      }),
      container('sleeper', {
        clock: clock([1, 1], { skips_idle: true }),
        leaps: { count: 31, by_ns: String(86_400n * SECOND) },
        command: ['sleep', 'infinity'],
      }),
      ...['left', 'right'].map((name) => container(name, { experiment: 'pair', clock: clock([1, 10]) })),
      ...inside,
    ],
  };
}

/** Adds what an action of a page adds. */
export function added(network, act) {
  const joined = (end, other, set) => link(end, other, set ?? {}, 0);
  if (act.do === 'link-add') network.links.push(joined(act.end, act.other, act.set));
  if (act.do !== 'node-add') return;
  if (act.kind) network.switches.push({ name: act.name, kind: act.kind, position: null });
  else network.nodes.push(node(network.name, act.name, null, { clock: network.clock }));
  for (const one of act.link ?? [])
    network.links.push(joined(`${act.name}:${one.interface}`, one.other, act.set));
}

/** The topology file of a network, without impairments. */
export function topologyOf(network) {
  const nodes = Object.fromEntries([
    ...network.nodes.map((one) => [one.name, {}]),
    ...network.switches.map((one) => [one.name, { kind: one.kind }]),
  ]);
  const links = network.links.map((one) => ({ endpoints: one.directions.map((way) => way.from) }));
  return JSON.stringify({ name: network.name, topology: { nodes, links } });
}

export const topology = `# A client and a server over a slow line.
name: lab
tdf: 10
topology:
  nodes:
    client: {position: [0, 0]}   # asks
    server:
      command: [iperf3, -s]
      position: [300, 0]
  links:
    - endpoints: ['client:eth0', 'server:eth0']
      ipv4: [10.0.0.1/24, 10.0.0.2/24]
      rate: 1gbit
      delay: 5ms
schedule:
  - {at: 10s, link: 'client:eth0', set: {delay: 80ms}, both: true}
`;
