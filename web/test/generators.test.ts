import { describe, expect, it } from 'vitest';
import { format, nextAddresses, parse, usedSubnets } from '../src/lib/addresses';
import { generate, type Shape, type Wish } from '../src/lib/generators';
import { addAll, EMPTY, read, type Topology } from '../src/lib/topology';

const empty = read(EMPTY)!;

function wish(shape: Shape, count: number, over: Partial<Wish> = {}): Wish {
  return { shape, count, prefix: 'n', children: 2, extra: 0.5, seed: 1, fields: { delay: '1ms' }, ...over };
}

/** The file after a generator ran. */
function grown(topology: Topology, one: Wish, text = EMPTY): { text: string; topology: Topology } {
  const made = generate(topology, one);
  const after = addAll(text, made.nodes, made.links);
  return { text: after, topology: read(after)! };
}

function connected(topology: Topology): boolean {
  const seen = new Set([topology.nodes[0]!.name]);
  for (let before = 0; before !== seen.size;) {
    before = seen.size;
    for (const { endpoints } of topology.links) {
      const [a, b] = endpoints.map((end) => end.split(':')[0]!) as [string, string];
      if (seen.has(a) || seen.has(b)) seen.add(a).add(b);
    }
  }
  return seen.size === topology.nodes.length;
}

describe('each shape', () => {
  const links: Record<Shape, number> = {
    line: 11,
    ring: 12,
    star: 11,
    grid: 17,
    tree: 11,
    random: 17,
    lan: 12,
  };
  it.each(Object.entries(links) as [Shape, number][])(
    '%s of 12 connects all by the links that it should have',
    (shape, count) => {
      const { topology } = grown(empty, wish(shape, 12));
      expect(topology.links).toHaveLength(count);
      expect(connected(topology)).toBe(true);
      const ends = topology.links.flatMap((link) => link.endpoints);
      expect(new Set(ends).size).toBe(ends.length);
      const addresses = topology.links
        .flatMap((link) => link.fields.ipv4 as (string | null)[])
        .filter(Boolean);
      expect(new Set(addresses).size).toBe(addresses.length);
      expect(addresses.every((one) => parse(one) !== null)).toBe(true);
      const places = topology.nodes.map((node) => node.position!.join());
      expect(new Set(places).size).toBe(places.length);
    },
  );

  it('goes beside what is there: other names, subnets, places', () => {
    const first = grown(empty, wish('ring', 5));
    const second = grown(first.topology, wish('line', 4), first.text).topology;
    expect(second.nodes.map((node) => node.name)).toEqual([
      'n1',
      'n2',
      'n3',
      'n4',
      'n5',
      'n6',
      'n7',
      'n8',
      'n9',
    ]);
    const addresses = second.links.flatMap((link) => link.fields.ipv4 as string[]);
    expect(new Set(addresses).size).toBe(2 * (5 + 3));
  });
});

it('1000 nodes have a subnet for each link, and a LAN of them one of 16 bits', () => {
  const grid = generate(empty, wish('grid', 1000));
  expect(new Set(grid.links.map((link) => link.ipv4![0])).size).toBe(grid.links.length);
  const lan = generate(empty, wish('lan', 1000));
  expect(lan.links[999]!.ipv4![0]).toBe('10.0.3.232/16');
});

it('the same seed makes the same random network', () => {
  const made = (seed: number) => generate(empty, wish('random', 30, { seed })).links.map((link) => link.ends);
  expect(made(7)).toEqual(made(7));
  expect(made(7)).not.toEqual(made(8));
});

it('wrong numbers are refused with what is accepted', () => {
  expect(() => generate(empty, wish('ring', 2))).toThrow('from 3 to 1000, not 2');
  expect(() => generate(empty, wish('line', 1001))).toThrow('from 1 to 1000');
  expect(() => generate(empty, wish('tree', 5, { children: 0 }))).toThrow('from 1, not 0');
});

describe('addresses', () => {
  it('are read and written', () => {
    expect(format(parse('10.1.2.3/24')!.address, 24)).toBe('10.1.2.3/24');
    expect([parse('10.0.0.256/24'), parse('10.0.0.1'), parse('10.0.0.1/33'), parse(null)]).toEqual([
      null,
      null,
      null,
      null,
    ]);
  });

  it('of a segment follow those that are there', () => {
    const lan = grown(empty, wish('lan', 3));
    expect(
      nextAddresses({ ...lan.topology, nodes: [...lan.topology.nodes, node('x')] }, 'x', 'switch1'),
    ).toEqual(['10.0.0.4/24', null]);
  });

  it('of a shorter prefix take all subnets in it', () => {
    const file = read(
      "name: l\ntopology:\n  nodes: {}\n  links:\n    - {endpoints: ['a:e', 'b:e'], ipv4: [10.1.2.3/16, 10.0.7.1/30]}\n",
    )!;
    const used = usedSubnets(file);
    expect([used.has(7), used.has(255), used.has(256), used.has(511), used.has(512)]).toEqual([
      true,
      false,
      true,
      true,
      false,
    ]);
  });
});

function node(name: string) {
  return { name, kind: 'process', position: null, fields: {} };
}
