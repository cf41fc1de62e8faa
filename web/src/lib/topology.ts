// A topology file as text. Each edit goes through the document model of `yaml`, which keeps comments and order.

import {
  Document,
  isMap,
  isScalar,
  isSeq,
  parseDocument,
  YAMLMap,
  YAMLSeq,
  type Node as YamlNode,
} from 'yaml';
import { nextAddresses } from './addresses';
import { nodeOf } from './layout';

export interface TopologyNode {
  name: string;
  kind: string;
  position: [number, number] | null;
  fields: Record<string, unknown>;
}

export interface TopologyLink {
  endpoints: [string, string];
  fields: Record<string, unknown>;
}

export interface Topology {
  name: string;
  nodes: TopologyNode[];
  links: TopologyLink[];
  schedule: Record<string, unknown>[];
  fields: Record<string, unknown>;
}

export const EMPTY = 'name: lab\ntopology:\n  nodes: {}\n  links: []\n';

/** Reads as much of a text as makes sense; null if it is no YAML. The server's check says what is wrong. */
export function read(text: string): Topology | null {
  const document = parseDocument(text);
  if (document.errors.length > 0) return null;
  const whole = plain(document.toJS());
  const topology = plain(whole.topology);
  const nodes = Object.entries(plain(topology.nodes)).map(([name, value]) => {
    const fields = plain(value);
    return { name, kind: String(fields.kind ?? 'process'), position: pair(fields.position), fields };
  });
  const links = list(topology.links).map((value) => {
    const fields = plain(value);
    const [a, b] = list(fields.endpoints).map(String);
    return { endpoints: [a ?? '', b ?? ''] as [string, string], fields };
  });
  return {
    name: String(whole.name ?? ''),
    nodes,
    links,
    schedule: list(whole.schedule).map(plain),
    fields: whole,
  };
}

function plain(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function pair(value: unknown): [number, number] | null {
  const [x, y] = list(value);
  return typeof x === 'number' && typeof y === 'number' ? [x, y] : null;
}

function edit(text: string, change: (document: Document) => void): string {
  const document = parseDocument(text);
  if (document.errors.length > 0) throw new Error('The text is no YAML: mend it first.');
  change(document);
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}

/** The map at a path, made where it is missing. Maps that are made, or were empty, are written on lines of their own. */
function mapAt(document: Document, path: (string | number)[]): YAMLMap {
  const found = document.getIn(path, false);
  if (isMap(found)) {
    if (found.items.length === 0) found.flow = false;
    return found;
  }
  const made = new YAMLMap();
  document.setIn(path, made);
  return made;
}

function seqAt(document: Document, path: (string | number)[]): YAMLSeq {
  const found = document.getIn(path, false);
  if (isSeq(found)) {
    if (found.items.length === 0) found.flow = false;
    return found;
  }
  const made = new YAMLSeq();
  document.setIn(path, made);
  return made;
}

/** A value as YAML. Lists are written in one line, as are maps inside of links and nodes. */
function written(document: Document, value: unknown): YamlNode {
  const node = document.createNode(value) as YamlNode;
  if (isSeq(node) || isMap(node)) node.flow = true;
  return node;
}

export function addNode(text: string, name: string, kind: string, position: [number, number] | null): string {
  return edit(text, (document) => {
    const fields = { ...(kind === 'process' ? {} : { kind }), ...(position ? { position } : {}) };
    const node = written(document, fields);
    if (kind === 'wlan' && isMap(node)) node.set('radio', written(document, { range: 275, delay: '5ms' }));
    mapAt(document, ['topology', 'nodes']).set(document.createNode(name), node);
  });
}

/** A name that is free: `n1`, `n2`, ... for processes, `switch1`, ... for others. */
export function freeName(topology: Topology, kind: string): string {
  const stem = kind === 'process' ? 'n' : kind;
  const taken = new Set(topology.nodes.map((node) => node.name));
  let number = 1;
  while (taken.has(`${stem}${number}`)) number += 1;
  return `${stem}${number}`;
}

/** The next free interface of a node: `eth0`, ... for processes, `1`, ... for switches. */
export function freeInterface(topology: Topology, name: string): string {
  const kind = topology.nodes.find((node) => node.name === name)?.kind ?? 'process';
  const taken = new Set(topology.links.flatMap((link) => link.endpoints));
  let number = kind === 'process' ? 0 : 1;
  const named = () => `${name}:${kind === 'process' ? 'eth' : ''}${number}`;
  while (taken.has(named())) number += 1;
  return named();
}

/** Adds a link, with addresses for the ends that run programs. */
export function addLink(text: string, a: string, b: string, fields: Record<string, unknown> = {}): string {
  const topology = read(text);
  if (!topology) throw new Error('The text is no YAML: mend it first.');
  const ends = [freeInterface(topology, a), freeInterface(topology, b)];
  const ipv4 = nextAddresses(topology, a, b);
  return edit(text, (document) => {
    const link = new YAMLMap();
    const endpoints = written(document, ends);
    link.set('endpoints', endpoints);
    if (ipv4) link.set('ipv4', written(document, ipv4));
    for (const [key, value] of Object.entries(fields)) link.set(key, written(document, value));
    seqAt(document, ['topology', 'links']).add(link);
  });
}

export function removeLink(text: string, index: number): string {
  const ends: string[] = read(text)?.links[index]?.endpoints ?? [];
  return edit(text, (document) => {
    document.deleteIn(['topology', 'links', index]);
    forget(document, (change) => ends.includes(String(change.get('link'))));
  });
}

/** Removes a node, its links, and the changes of the schedule that name them. */
export function removeNode(text: string, name: string): string {
  const topology = read(text);
  return edit(text, (document) => {
    document.deleteIn(['topology', 'nodes', name]);
    const gone = (topology?.links ?? []).flatMap((link, index) =>
      link.endpoints.some((end) => nodeOf(end) === name) ? [index] : [],
    );
    for (const index of gone.reverse()) document.deleteIn(['topology', 'links', index]);
    const ends = new Set(
      (topology?.links ?? []).filter((_, index) => gone.includes(index)).flatMap((link) => link.endpoints),
    );
    forget(document, (change) => change.get('node') === name || ends.has(String(change.get('link'))));
  });
}

/** Drops changes of the schedule, and the schedule if none is left. */
function forget(document: Document, drops: (change: YAMLMap) => boolean): void {
  const schedule = document.get('schedule', true) as unknown;
  if (!isSeq(schedule)) return;
  schedule.items = schedule.items.filter((item) => !isMap(item) || !drops(item));
  if (schedule.items.length === 0) document.delete('schedule');
}

/** Renames a node, also where links, schedule and other nodes name it. */
export function renameNode(text: string, from: string, to: string): string {
  return edit(text, (document) => {
    const nodes = mapAt(document, ['topology', 'nodes']);
    if (nodes.has(to)) throw new Error(`There is a node ${to} already.`);
    for (const item of nodes.items) {
      if (isScalar(item.key) && String(item.key.value) === from) item.key.value = to;
      if (isMap(item.value) && item.value.get('network-of') === from) item.value.set('network-of', to);
    }
    const renamed = (end: unknown) =>
      typeof end === 'string' && nodeOf(end) === from ? `${to}${end.slice(from.length)}` : end;
    const links = document.getIn(['topology', 'links'], true);
    for (const link of isSeq(links) ? links.items : []) {
      if (!isMap(link)) continue;
      const ends = link.get('endpoints', true) as unknown;
      if (isSeq(ends)) for (const end of ends.items) if (isScalar(end)) end.value = renamed(end.value);
      const sides = link.get('from', true) as unknown;
      if (isMap(sides))
        for (const side of sides.items) if (isScalar(side.key)) side.key.value = renamed(side.key.value);
    }
    const schedule = document.get('schedule', true) as unknown;
    for (const change of isSeq(schedule) ? schedule.items : []) {
      if (!isMap(change)) continue;
      if (change.has('link')) change.set('link', renamed(change.get('link')));
      if (change.get('node') === from) change.set('node', to);
    }
  });
}

/** Sets one value, or removes it if it is undefined. A map or list that stands there keeps its comments. */
export function setField(text: string, path: (string | number)[], value: unknown): string {
  return edit(text, (document) => {
    if (value === undefined) {
      document.deleteIn(path);
      return;
    }
    const parent = path.slice(0, -1);
    if (parent.length > 0 && !isMap(document.getIn(parent, true)) && !isSeq(document.getIn(parent, true)))
      mapAt(document, parent);
    const there = document.getIn(path, true);
    if (isScalar(there) && (value === null || typeof value !== 'object')) there.value = value;
    else document.setIn(path, written(document, value));
  });
}

export function setPosition(text: string, name: string, position: [number, number]): string {
  return setField(
    text,
    ['topology', 'nodes', name, 'position'],
    position.map((one) => Math.round(one * 100) / 100),
  );
}

export function addChange(text: string, change: Record<string, unknown>): string {
  return edit(text, (document) => {
    const made = written(document, change);
    seqAt(document, ['schedule']).add(made);
  });
}

export function removeChange(text: string, index: number): string {
  return edit(text, (document) => {
    document.deleteIn(['schedule', index]);
    forget(document, () => false);
  });
}

/** Adds many nodes and links at once. */
export function addAll(
  text: string,
  nodes: { name: string; kind: string; position: [number, number] | null }[],
  links: { ends: [string, string]; ipv4: (string | null)[] | null; fields: Record<string, unknown> }[],
): string {
  return edit(text, (document) => {
    const all = mapAt(document, ['topology', 'nodes']);
    for (const { name, kind, position } of nodes) {
      const fields = { ...(kind === 'process' ? {} : { kind }), ...(position ? { position } : {}) };
      all.set(document.createNode(name), written(document, fields));
    }
    const lines = seqAt(document, ['topology', 'links']);
    for (const { ends, ipv4, fields } of links) {
      const link = new YAMLMap();
      link.set('endpoints', written(document, ends));
      if (ipv4) link.set('ipv4', written(document, ipv4));
      for (const [key, value] of Object.entries(fields)) link.set(key, written(document, value));
      lines.add(link);
    }
  });
}
