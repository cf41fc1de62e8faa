import { expect, it } from 'vitest';
import { beside, lanes, nodeOf, place, Places } from '../src/lib/layout';

it('places of the file keep their shape', () => {
  const places = place(
    [
      { name: 'a', position: [0, 0] },
      { name: 'b', position: [1, 0] },
      { name: 'c', position: [3, 4] },
    ],
    [],
  );
  const [a, b, c] = ['a', 'b', 'c'].map((name) => places.get(name)!);
  const unit = b!.x - a!.x;
  expect(unit).toBeGreaterThan(100);
  expect([c!.x / unit, c!.y / unit]).toEqual([3, 4]);
});

it('nodes without a place get one, apart from each other and the same each time', () => {
  const nodes = Array.from({ length: 40 }, (_, index) => ({ name: `n${index}`, position: null }));
  const pairs = nodes.slice(1).map((node, index) => [node.name, `n${Math.floor(index / 2)}`] as const);
  const places = [...place(nodes, pairs).values()];
  expect(places).toHaveLength(40);
  expect([...place(nodes, pairs).values()]).toEqual(places);
  for (const [index, one] of places.entries())
    for (const other of places.slice(index + 1))
      expect(Math.hypot(one.x - other.x, one.y - other.y)).toBeGreaterThan(40);
});

it('links between the same nodes lie side by side, whatever their direction', () => {
  expect(
    lanes([
      ['a', 'b'],
      ['b', 'a'],
      ['a', 'c'],
    ]),
  ).toEqual([
    { lane: 0, of: 2 },
    { lane: 1, of: 2 },
    { lane: 0, of: 1 },
  ]);
});

it('an end names its node', () => {
  expect([nodeOf('r1:eth0'), nodeOf('lan:1')]).toEqual(['r1', 'lan']);
});

it('nodes stay where they are while others come and go', () => {
  const places = new Places();
  const free = (name: string) => ({ name, position: null });
  const first = places.of([free('a'), free('b')], [['a', 'b']]);
  places.move('b', { x: 500, y: 7 });
  const pairs = [
    ['a', 'b'],
    ['b', 'c'],
  ] as const;
  const more = places.of([free('c'), free('a'), free('b')], pairs);
  expect(more.get('a')).toEqual(first.get('a'));
  expect(more.get('b')).toEqual({ x: 500, y: 7 });
  const c = more.get('c')!;
  expect(Math.hypot(c.x - 500, c.y - 7)).toBeLessThan(400);
  const less = places.of([free('c'), free('b')], [['b', 'c']]);
  expect(less.get('c')).toEqual(c);
});

it('a node whose position changes moves, at the scale of before', () => {
  const places = new Places();
  const at = (name: string, x: number) => ({ name, position: [x, 0] as const });
  const first = places.of([at('a', 0), at('b', 10)], []);
  const unit = first.get('b')!.x / 10;
  // Nearer than any two before: that would be another scale.
  const later = places.of([at('a', 0), at('b', 12), at('c', 13)], []);
  expect([later.get('b')!.x, later.get('c')!.x]).toEqual([12 * unit, 13 * unit]);
});

it('a new node has room: beside its neighbour, or below all others', () => {
  const taken = [
    { x: 0, y: 0 },
    { x: 180, y: 0 },
    { x: -180, y: 0 },
  ];
  const at = beside([taken[0]!], taken);
  for (const one of taken) expect(Math.hypot(one.x - at.x, one.y - at.y)).toBeGreaterThan(140);
  expect(beside([], taken)).toEqual({ x: 0, y: 150 });
  expect(beside([], [])).toEqual({ x: 0, y: 0 });
});
