import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import {
  addAll,
  addChange,
  addLink,
  addNode,
  EMPTY,
  freeInterface,
  freeName,
  read,
  removeLink,
  removeNode,
  renameNode,
  setField,
  setPosition,
} from '../src/lib/topology';

const FILE = `# A lab of three.
name: lab   # the name
tdf: 10
topology:
  nodes:
    # The one that asks.
    client: {position: [0, 0]}
    server:
      command: [iperf3, -s]   # answers
    lan: {kind: switch}
  links:
    # The slow one.
    - endpoints: ['client:eth0', 'lan:1']
      ipv4: [10.0.0.1/24, null]
      delay: 5ms   # one way
      from:
        client:eth0: {rate: 1mbit}
    - endpoints: ['server:eth0', 'lan:2']
      ipv4: [10.0.0.2/24, null]
schedule:
  - {at: 10s, link: 'client:eth0', set: {delay: 80ms}}
  - {at: 20s, node: server, position: [1, 2]}
`;

const COMMENTS = [
  '# A lab of three.',
  '# the name',
  '# The one that asks.',
  '# answers',
  '# The slow one.',
  '# one way',
];

/** The lines of `after` that `before` does not have. */
function fresh(before: string, after: string): string[] {
  const known = new Set(before.split('\n').map((line) => line.replace(/\s+#/, ' #')));
  return after.split('\n').filter((line) => !known.has(line.replace(/\s+#/, ' #')));
}

describe('edits keep comments and order', () => {
  const edits: [string, (text: string) => string][] = [
    ['a node more', (text) => addNode(text, 'n1', 'process', [1, 2])],
    ['a link more', (text) => addLink(text, 'client', 'server')],
    ['another name', (text) => renameNode(text, 'client', 'asker')],
    ['another place', (text) => setPosition(text, 'server', [3, 4])],
    ['another delay', (text) => setField(text, ['topology', 'links', 0, 'delay'], '7ms')],
    ['a change more', (text) => addChange(text, { at: '1s', link: 'client:eth0', state: 'down' })],
  ];
  it.each(edits)('%s', (_name, edit) => {
    const after = edit(FILE);
    for (const comment of COMMENTS) expect(after).toContain(comment);
    expect(Object.keys(parse(after) as object)).toEqual(['name', 'tdf', 'topology', 'schedule']);
    expect(after).not.toBe(FILE);
  });

  it('changes only the lines concerned', () => {
    expect(fresh(FILE, setField(FILE, ['topology', 'links', 0, 'delay'], '7ms'))).toEqual([
      '      delay: 7ms # one way',
    ]);
    expect(fresh(FILE, setPosition(FILE, 'client', [5.123, 6]))).toEqual([
      '    client: {position: [5.12, 6]}',
    ]);
    expect(fresh(FILE, addNode(FILE, 'n1', 'hub', [1, 2]))).toEqual([
      '    n1: {kind: hub, position: [1, 2]}',
    ]);
  });
});

describe('names', () => {
  it('follow a renamed node everywhere', () => {
    const asked = read(renameNode(FILE, 'client', 'asker'))!;
    expect(asked.nodes.map((node) => node.name)).toEqual(['asker', 'server', 'lan']);
    expect(asked.links[0]!.endpoints).toEqual(['asker:eth0', 'lan:1']);
    expect(Object.keys(asked.links[0]!.fields.from as object)).toEqual(['asker:eth0']);
    expect(asked.schedule[0]!.link).toBe('asker:eth0');
    expect(read(renameNode(FILE, 'server', 's'))!.schedule[1]!.node).toBe('s');
  });

  it('are not given twice', () => {
    expect(() => renameNode(FILE, 'client', 'server')).toThrow('a node server already');
    expect(freeName(read(FILE)!, 'process')).toBe('n1');
    expect(freeInterface(read(FILE)!, 'client')).toBe('client:eth1');
    expect(freeInterface(read(FILE)!, 'lan')).toBe('lan:3');
  });
});

describe('removal', () => {
  it('of a node takes its links and its changes along', () => {
    const after = removeNode(FILE, 'client');
    expect(read(after)!.links.map((link) => link.endpoints[0])).toEqual(['server:eth0']);
    expect(read(after)!.schedule).toEqual([{ at: '20s', node: 'server', position: [1, 2] }]);
    expect(read(removeNode(after, 'server'))!.fields).not.toHaveProperty('schedule');
  });

  it('of a link leaves the others', () => {
    expect(read(removeLink(FILE, 0))!.links).toHaveLength(1);
    expect(read(removeLink(FILE, 0))!.schedule).toHaveLength(1);
  });

  it('of a value removes its key', () => {
    expect(read(setField(FILE, ['tdf'], undefined))!.fields).not.toHaveProperty('tdf');
  });
});

it('an empty file grows on lines of its own', () => {
  let text = addNode(EMPTY, 'a', 'process', [0, 0]);
  text = addNode(text, 'b', 'process', [200, 0]);
  text = addLink(text, 'a', 'b', { delay: '5ms' });
  expect(text).toBe(`name: lab
topology:
  nodes:
    a: {position: [0, 0]}
    b: {position: [200, 0]}
  links:
    - endpoints: [a:eth0, b:eth0]
      ipv4: [10.0.0.1/24, 10.0.0.2/24]
      delay: 5ms
`);
  const more = addAll(
    text,
    [{ name: 'c', kind: 'hub', position: null }],
    [{ ends: ['a:eth1', 'c:1'], ipv4: null, fields: {} }],
  );
  expect(read(more)!.nodes).toHaveLength(3);
});

it('a text that is no YAML is not edited', () => {
  expect(read('a: [')).toBeNull();
  expect(() => addNode('a: [', 'n', 'process', null)).toThrow('no YAML');
});
