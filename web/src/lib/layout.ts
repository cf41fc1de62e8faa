// Places for nodes: those of the file, scaled to the screen, or those of a force layout.

import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from 'd3-force';

export interface Placed {
  name: string;
  position: readonly [number, number] | null;
}

export type Point = { x: number; y: number };

/** Distance of nodes that have a link in a force layout, in pixels. */
const APART = 240;
/** Distance of the closest two nodes of a file, in pixels: wide enough for the box of one. */
const CLOSEST = 150;
const STEPS_OF_FEW = 300;
const STEPS_OF_MANY = 120;
const MANY = 300;

/**
 * Places all nodes. `pairs`: names of nodes that have a link. Without positions, or with some only, a force layout
 * places the others; it begins from a circle, so that the same network looks the same each time. `scaled`: pixels for
 * a unit of the positions, where the caller knows them.
 */
export function place(
  nodes: Placed[],
  pairs: readonly (readonly [string, string])[],
  scaled?: number,
): Map<string, Point> {
  const fixed = nodes.filter((node) => node.position);
  const scale = scaled ?? (fixed.length > 1 ? scaleOf(fixed.map((node) => node.position!)) : 1);
  if (fixed.length === nodes.length) {
    return new Map(
      nodes.map(({ name, position }) => [name, { x: position![0] * scale, y: position![1] * scale }]),
    );
  }
  const radius = (APART * nodes.length) / 5;
  const bodies = nodes.map((node, index) => {
    const angle = (2 * Math.PI * index) / nodes.length;
    const at = node.position && { x: node.position[0] * scale, y: node.position[1] * scale };
    return {
      name: node.name,
      x: at?.x ?? radius * Math.cos(angle),
      y: at?.y ?? radius * Math.sin(angle),
      ...(at ? { fx: at.x, fy: at.y } : {}),
    };
  });
  const known = new Set(nodes.map((node) => node.name));
  const links = pairs
    .filter(([a, b]) => known.has(a) && known.has(b) && a !== b)
    .map(([source, target]) => ({ source, target }));
  const simulation = forceSimulation(bodies)
    .force(
      'link',
      forceLink<(typeof bodies)[number], (typeof links)[number]>(links)
        .id((body) => body.name)
        .distance(APART)
        .strength(0.7),
    )
    .force(
      'charge',
      forceManyBody()
        .strength(-600)
        .distanceMax(APART * 6),
    )
    .force('apart', forceCollide(APART / 2.2))
    .force('x', forceX(0).strength(0.03))
    .force('y', forceY(0).strength(0.045))
    .stop();
  simulation.tick(nodes.length > MANY ? STEPS_OF_MANY : STEPS_OF_FEW);
  return new Map(bodies.map((body) => [body.name, { x: Math.round(body.x), y: Math.round(body.y) }]));
}

/** Places of a network that runs. A node keeps its place while others come and go. */
export class Places {
  private known = new Map<string, { position: string; at: Point }>();
  private scale = 1;

  /** Places all nodes: at first by `place`; later a new node beside those that it is linked to. */
  of(nodes: Placed[], pairs: readonly (readonly [string, string])[]): Map<string, Point> {
    if (this.known.size === 0) {
      const fixed = nodes.filter((node) => node.position);
      this.scale = fixed.length > 1 ? scaleOf(fixed.map((node) => node.position!)) : 1;
    }
    const first = this.known.size === 0 ? place(nodes, pairs, this.scale) : null;
    const found = new Map<string, Point>();
    for (const { name, position } of nodes) {
      const before = this.known.get(name);
      const at =
        first?.get(name) ??
        (before?.position === String(position) ? before.at : undefined) ??
        (position && { x: position[0] * this.scale, y: position[1] * this.scale });
      if (at) found.set(name, at);
    }
    for (const { name } of nodes) {
      if (found.has(name)) continue;
      const linked = pairs
        .filter((pair) => pair.includes(name))
        .flatMap(([a, b]) => found.get(a === name ? b : a) ?? []);
      found.set(name, beside(linked, [...found.values()]));
    }
    this.known = new Map(
      nodes.map(({ name, position }) => [name, { position: String(position), at: found.get(name)! }]),
    );
    return found;
  }

  /** A person has moved a node. */
  move(name: string, at: Point): void {
    const there = this.known.get(name);
    if (there) there.at = at;
  }
}

/** The freest place around the middle of `linked`; without links, below all that is `taken`. */
export function beside(linked: Point[], taken: Point[]): Point {
  const mean = (all: number[]) => all.reduce((sum, one) => sum + one, 0) / Math.max(1, all.length);
  const around = linked.length > 0 ? linked : taken;
  const middle = { x: mean(around.map((one) => one.x)), y: mean(around.map((one) => one.y)) };
  if (linked.length === 0) {
    const lowest = Math.max(-CLOSEST, ...taken.map((one) => one.y));
    return { x: Math.round(middle.x), y: Math.round(lowest + CLOSEST) };
  }
  let best = { ...middle, free: -1 };
  for (const radius of [APART * 0.75, APART * 1.25]) {
    for (let step = 0; step < 24; step += 1) {
      const angle = (2 * Math.PI * step) / 24;
      const [x, y] = [middle.x + radius * Math.cos(angle), middle.y + radius * Math.sin(angle)];
      // More room than this is no better: the nearer ring has precedence.
      const free = Math.min(CLOSEST, ...taken.map((one) => Math.hypot(one.x - x, one.y - y)));
      if (free > best.free) best = { x, y, free };
    }
  }
  return { x: Math.round(best.x), y: Math.round(best.y) };
}

/** The factor that brings the closest two nodes CLOSEST pixels from each other, between 0.2 and 200. */
export function scaleOf(positions: (readonly [number, number])[]): number {
  let least = Infinity;
  for (let one = 0; one < positions.length; one += 1) {
    for (let other = one + 1; other < positions.length; other += 1) {
      const [a, b] = [positions[one]!, positions[other]!];
      const distance = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (distance > 0) least = Math.min(least, distance);
    }
  }
  return Number.isFinite(least) ? Math.min(200, Math.max(0.2, CLOSEST / least)) : 1;
}

/** The node of an end, `NODE:INTERFACE`. */
export function nodeOf(end: string): string {
  return end.slice(0, end.lastIndexOf(':'));
}

/** For each link its number among those between the same two nodes, for links side by side. */
export function lanes(pairs: readonly (readonly [string, string])[]): { lane: number; of: number }[] {
  const key = ([a, b]: readonly [string, string]) => (a < b ? `${a} ${b}` : `${b} ${a}`);
  const totals = new Map<string, number>();
  const numbered = pairs.map((pair) => {
    const lane = totals.get(key(pair)) ?? 0;
    totals.set(key(pair), lane + 1);
    return lane;
  });
  return pairs.map((pair, index) => ({ lane: numbered[index]!, of: totals.get(key(pair))! }));
}
