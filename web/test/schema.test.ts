import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { fieldsOf, shown, taken, takenPair, type Schema } from '../src/lib/schema';

const schema = JSON.parse(
  readFileSync(new URL('../../docs/network.schema.json', import.meta.url), 'utf8'),
) as Schema;
const field = (definition: string, key: string) =>
  fieldsOf(schema, definition).find((one) => one.key === key)!;

describe("forms of Lorentz's own schema", () => {
  it('have a field with help for each key', () => {
    for (const definition of ['Node', 'Link', 'ScheduledChange']) {
      const keys = Object.keys(schema.$defs![definition]!.properties!).sort();
      const fields = fieldsOf(schema, definition);
      expect(fields.map((one) => one.key).sort()).toEqual(keys);
      expect(fields.filter((one) => !one.help)).toEqual([]);
    }
    expect(fieldsOf(schema, 'Link', ['rate', 'delay'])[0]!.key).toBe('rate');
  });

  it('choose the kind of field by its type', () => {
    expect(field('Node', 'kind')).toMatchObject({ kind: 'choice', placeholder: 'process' });
    expect(field('Node', 'kind').choices.map((one) => one.value)).toEqual([
      'process',
      'switch',
      'hub',
      'wlan',
    ]);
    expect(field('Node', 'stp').kind).toBe('switch');
    expect(field('Node', 'exec').kind).toBe('lines');
    expect(field('Node', 'position').kind).toBe('pair');
    expect(field('Link', 'endpoints').kind).toBe('pair');
    expect(field('Link', 'rate')).toMatchObject({ kind: 'text', placeholder: '10mbit' });
    expect(field('Link', 'queue').kind).toBe('yaml');
    expect(field('Link', 'mtu')).toMatchObject({ kind: 'text', numeric: true, placeholder: '1500' });
  });
});

it('values come back as they were', () => {
  for (const [definition, key, value] of [
    ['Node', 'exec', ['ip link', 'true']],
    ['Node', 'command', ['iperf3', '-s']],
    ['Node', 'env', { A: 'b' }],
    ['Link', 'queue', { packets: 50 }],
    ['Link', 'loss', { enter: '1%', leave: '20%' }],
    ['Link', 'delay', '5ms'],
    ['Link', 'mtu', 9000],
  ] as const)
    expect(taken(field(definition, key), shown(field(definition, key), value))).toEqual(value);
  expect(taken(field('Link', 'delay'), '  ')).toBeUndefined();
  expect(takenPair(['10.0.0.1/24', ''])).toEqual(['10.0.0.1/24', null]);
  expect(takenPair(['1', '2.5'])).toEqual([1, 2.5]);
  expect(takenPair(['', ' '])).toBeUndefined();
});
