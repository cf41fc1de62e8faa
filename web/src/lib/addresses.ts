// IPv4 addresses for new links: subnets /24 of 10.0.0.0/8 that the file does not use.

import { nodeOf } from './layout';
import type { Topology } from './topology';

/** Subnets of 10.0.0.0/8 with 24 bits. */
const SUBNETS = 65_536;

export function parse(text: unknown): { address: number; length: number } | null {
  const found = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(String(text));
  if (!found) return null;
  const [a, b, c, d, length] = found.slice(1).map(Number) as [number, number, number, number, number];
  if ([a, b, c, d].some((one) => one > 255) || length > 32) return null;
  return { address: ((a * 256 + b) * 256 + c) * 256 + d, length };
}

export function format(address: number, length: number): string {
  const bytes = [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256);
  return `${bytes.join('.')}/${length}`;
}

function ipv4Of(topology: Topology): string[] {
  return topology.links.flatMap((link) =>
    (Array.isArray(link.fields.ipv4) ? link.fields.ipv4 : []).map(String),
  );
}

/** Numbers of the subnets 10.X.Y.0/24 that addresses of the file lie in. */
export function usedSubnets(topology: Topology): Set<number> {
  const used = new Set<number>();
  for (const text of ipv4Of(topology)) {
    const found = parse(text);
    if (!found || Math.floor(found.address / 2 ** 24) !== 10) continue;
    // A shorter prefix covers many: all of them are taken.
    const size = 2 ** Math.max(0, 24 - Math.max(8, found.length));
    const first = Math.floor((Math.floor(found.address / 256) % SUBNETS) / size) * size;
    for (let number = first; number < first + size; number += 1) used.add(number);
  }
  return used;
}

export function freeSubnet(used: Set<number>): number {
  let number = 0;
  while (used.has(number)) number += 1;
  if (number >= SUBNETS) throw new Error('All subnets of 10.0.0.0/8 are taken.');
  used.add(number);
  return number;
}

export function inSubnet(subnet: number, host: number): string {
  return format(10 * 2 ** 24 + subnet * 256 + host, 24);
}

/** Addresses for a new link between two nodes; null if neither end runs programs. Ends at switches have none. */
export function nextAddresses(
  topology: Topology,
  a: string,
  b: string,
): [string | null, string | null] | null {
  const runs = (name: string) =>
    (topology.nodes.find((node) => node.name === name)?.kind ?? 'process') === 'process';
  if (!runs(a) && !runs(b)) return null;
  if (runs(a) && runs(b)) {
    const subnet = freeSubnet(usedSubnets(topology));
    return [inSubnet(subnet, 1), inSubnet(subnet, 2)];
  }
  const address = nextOnSegment(topology, runs(a) ? b : a);
  return runs(a) ? [address, null] : [null, address];
}

/** The next free address on the segment of a switch: all that switches and hubs join. */
function nextOnSegment(topology: Topology, start: string): string {
  const joins = new Set(topology.nodes.filter((node) => node.kind !== 'process').map((node) => node.name));
  const segment = new Set([start]);
  // Each pass joins the neighbours of what is there; a file has few switches in a row.
  for (let before = 0; before !== segment.size;) {
    before = segment.size;
    for (const { endpoints } of topology.links) {
      const [one, other] = endpoints.map(nodeOf) as [string, string];
      if (segment.has(one) && joins.has(other)) segment.add(other);
      if (segment.has(other) && joins.has(one)) segment.add(one);
    }
  }
  const there = topology.links
    .filter((link) => link.endpoints.some((end) => segment.has(nodeOf(end))))
    .flatMap((link) => (Array.isArray(link.fields.ipv4) ? link.fields.ipv4.map(parse) : []))
    .filter((one) => one !== null);
  const first = there[0];
  if (!first) return inSubnet(freeSubnet(usedSubnets(topology)), 1);
  const size = 2 ** (32 - first.length);
  const base = Math.floor(first.address / size) * size;
  const taken = new Set(there.map((one) => one.address));
  for (let host = 1; host < size - 1; host += 1) {
    if (!taken.has(base + host)) return format(base + host, first.length);
  }
  return inSubnet(freeSubnet(usedSubnets(topology)), 1);
}
