// Topologies of many nodes: line, ring, star, grid, tree, random, and several nodes of a kind at one switch.

import { format, freeSubnet, inSubnet, usedSubnets } from './addresses';
import type { Topology } from './topology';

export type Shape = 'line' | 'ring' | 'star' | 'grid' | 'tree' | 'random' | 'lan';

export interface Wish {
  shape: Shape;
  count: number;
  /** Begin of the names; numbers follow. */
  prefix: string;
  /** Children of each node, of a tree. */
  children: number;
  /** Links beyond those that connect all, of a random topology, as a share of the nodes. */
  extra: number;
  seed: number;
  /** Impairments of each link, as `{delay: '1ms'}`. */
  fields: Record<string, unknown>;
}

export interface Made {
  nodes: { name: string; kind: string; position: [number, number] | null }[];
  links: { ends: [string, string]; ipv4: (string | null)[] | null; fields: Record<string, unknown> }[];
}

export const MOST_NODES = 1000;
const APART = 240;
/** Hosts of a subnet of 16 bits, for a LAN of up to 1000 nodes. */
const WIDE = 16;

/** Makes nodes and links that are not in the file yet. Each link has a subnet of its own; a LAN has one for all. */
export function generate(topology: Topology, wish: Wish): Made {
  const least = wish.shape === 'ring' ? 3 : 1;
  if (!Number.isInteger(wish.count) || wish.count < least || wish.count > MOST_NODES)
    throw new Error(
      `The number of nodes of a ${wish.shape} is from ${least} to ${MOST_NODES}, not ${wish.count}.`,
    );
  if (wish.shape === 'tree' && !(Number.isInteger(wish.children) && wish.children >= 1))
    throw new Error(`The number of children is a whole number from 1, not ${wish.children}.`);
  const names = freeNames(topology, wish);
  const offset = below(topology);
  const places = positions(wish);
  const nodes: Made['nodes'] = names.map((name, index) => ({
    name,
    kind: 'process',
    position: [places[index]![0] + offset[0], places[index]![1] + offset[1]],
  }));
  if (wish.shape === 'lan') return lan(topology, wish, nodes, offset);
  const used = usedSubnets(topology);
  const interfaces = new Map<string, number>();
  const end = (name: string) => {
    const number = interfaces.get(name) ?? 0;
    interfaces.set(name, number + 1);
    return `${name}:eth${number}`;
  };
  const links = pairs(wish).map(([a, b]) => {
    const subnet = freeSubnet(used);
    return {
      ends: [end(names[a]!), end(names[b]!)] as [string, string],
      ipv4: [inSubnet(subnet, 1), inSubnet(subnet, 2)],
      fields: wish.fields,
    };
  });
  return { nodes, links };
}

function lan(topology: Topology, wish: Wish, nodes: Made['nodes'], offset: [number, number]): Made {
  const taken = new Set([...topology.nodes, ...nodes].map((node) => node.name));
  let number = 1;
  while (taken.has(`switch${number}`)) number += 1;
  const centre = `switch${number}`;
  const small = wish.count <= 254;
  const used = usedSubnets(topology);
  const base = small ? freeSubnet(used) * 256 : freeWide(used) * 65_536;
  const links = nodes.map((node, index) => ({
    ends: [`${node.name}:eth0`, `${centre}:${index + 1}`] as [string, string],
    ipv4: [format(10 * 2 ** 24 + base + index + 1, small ? 24 : WIDE), null],
    fields: wish.fields,
  }));
  return { nodes: [...nodes, { name: centre, kind: 'switch', position: offset }], links };
}

/** A free subnet 10.X.0.0/16. */
function freeWide(used: Set<number>): number {
  for (let number = 0; number < 256; number += 1) {
    if (![...used].some((one) => Math.floor(one / 256) === number)) return number;
  }
  throw new Error('All subnets of 10.0.0.0/8 are taken.');
}

function freeNames(topology: Topology, wish: Wish): string[] {
  const taken = new Set(topology.nodes.map((node) => node.name));
  const names: string[] = [];
  for (let number = 1; names.length < wish.count; number += 1) {
    if (!taken.has(`${wish.prefix}${number}`)) names.push(`${wish.prefix}${number}`);
  }
  return names;
}

/** Pairs of nodes, by number, that have a link. */
export function pairs(wish: Wish): [number, number][] {
  const { count, shape } = wish;
  const line = Array.from({ length: count - 1 }, (_, index) => [index, index + 1] as [number, number]);
  switch (shape) {
    case 'line':
      return line;
    case 'ring':
      return [...line, [count - 1, 0]];
    case 'star':
      return Array.from({ length: count - 1 }, (_, index) => [0, index + 1]);
    case 'tree':
      return Array.from({ length: count - 1 }, (_, index) => [Math.floor(index / wish.children), index + 1]);
    case 'grid': {
      const side = Math.ceil(Math.sqrt(count));
      const right = line.filter(([, to]) => to % side !== 0);
      const down = Array.from(
        { length: Math.max(0, count - side) },
        (_, index) => [index, index + side] as [number, number],
      );
      return [...right, ...down];
    }
    case 'random':
      return random(wish);
    case 'lan':
      return [];
  }
}

/** A random tree, which connects all, and further links between random nodes; the same for the same seed. */
function random({ count, extra, seed }: Wish): [number, number][] {
  const draw = generator(seed);
  const made: [number, number][] = [];
  const known = new Set<string>();
  const add = (a: number, b: number): boolean => {
    const key = a < b ? `${a} ${b}` : `${b} ${a}`;
    if (a === b || known.has(key)) return false;
    known.add(key);
    made.push([a, b]);
    return true;
  };
  for (let node = 1; node < count; node += 1) add(Math.floor(draw() * node), node);
  const most = Math.min((count * (count - 1)) / 2, count - 1 + Math.round(count * extra));
  for (let tries = 0; made.length < most && tries < 50 * count; tries += 1)
    add(Math.floor(draw() * count), Math.floor(draw() * count));
  return made;
}

/** Numbers from 0 to 1 by a linear congruential generator (Numerical Recipes). */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function positions(wish: Wish): [number, number][] {
  const { count, shape } = wish;
  const numbers = Array.from({ length: count }, (_, index) => index);
  const circle = (index: number, of: number): [number, number] => {
    const radius = Math.max(APART, (of * APART) / (2 * Math.PI));
    const angle = (2 * Math.PI * index) / Math.max(1, of) - Math.PI / 2;
    return [Math.round(radius * Math.cos(angle)), Math.round(radius * Math.sin(angle))];
  };
  if (shape === 'line') return numbers.map((index) => [index * APART, 0]);
  if (shape === 'star') return numbers.map((index) => (index === 0 ? [0, 0] : circle(index - 1, count - 1)));
  if (shape === 'ring' || shape === 'lan') return numbers.map((index) => circle(index, count));
  if (shape === 'tree') return tree(wish);
  const side = Math.ceil(Math.sqrt(count));
  return numbers.map((index) => [(index % side) * APART, Math.floor(index / side) * APART]);
}

function tree({ count, children }: Wish): [number, number][] {
  const depths = Array.from({ length: count }, () => 0);
  for (let index = 1; index < count; index += 1)
    depths[index] = depths[Math.floor((index - 1) / children)]! + 1;
  const widths = new Map<number, number>();
  for (const depth of depths) widths.set(depth, (widths.get(depth) ?? 0) + 1);
  const widest = Math.max(...widths.values()) * APART;
  const placed = new Map<number, number>();
  return depths.map((depth) => {
    const number = placed.get(depth) ?? 0;
    placed.set(depth, number + 1);
    return [Math.round(((number + 0.5) * widest) / widths.get(depth)!), depth * APART];
  });
}

/** Where new nodes begin: below those that are there. */
function below(topology: Topology): [number, number] {
  const there = topology.nodes.flatMap((node) => (node.position ? [node.position] : []));
  if (there.length === 0) return [0, 0];
  return [Math.min(...there.map((at) => at[0])), Math.max(...there.map((at) => at[1])) + 1.5 * APART];
}
