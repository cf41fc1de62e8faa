// The topology of a network that runs, for forms of new nodes and links: which names, interfaces and addresses are free.

import { nextAddresses } from './addresses';
import { readTopology } from './session.svelte';
import { EMPTY, freeInterface, freeName, read, type Topology } from './topology';
import type { Impairments } from './types';

/** An end of a link as a form has it. */
export interface End {
  node: string;
  interface: string;
}

export class Joining {
  topology = $state.raw<Topology>(read(EMPTY)!);
  /** Why the topology could not be read. */
  error = $state('');
  ready = $state(false);

  async load(network: string): Promise<void> {
    try {
      const found = read(await readTopology(network));
      if (found) this.topology = found;
    } catch (reason) {
      this.error = (reason as Error).message;
    }
    this.ready = true;
  }

  /** Nodes that a link may end at. A wlan takes no members while the network runs. */
  get nodes(): string[] {
    return this.topology.nodes.filter((node) => node.kind !== 'wlan').map((node) => node.name);
  }

  runs(name: string): boolean {
    return this.topology.nodes.find((node) => node.name === name)?.kind === 'process';
  }

  freeName(kind: string): string {
    return freeName(this.topology, kind);
  }

  /** A free interface of a node, without the node's name. */
  freeInterface(name: string, taken: string[] = []): string {
    if (!name) return '';
    const links = taken.map((end) => ({ endpoints: [end, ''] as [string, string], fields: {} }));
    const all = { ...this.topology, links: [...this.topology.links, ...links] };
    return freeInterface(all, name).slice(name.length + 1);
  }

  /** Addresses for a link between two nodes; empty for an end that runs nothing. */
  addresses(a: string, b: string): [string, string] {
    if (!a || !b) return ['', ''];
    const found = nextAddresses(this.topology, a, b) ?? [null, null];
    return [found[0] ?? '', found[1] ?? ''];
  }

  /** As `addresses`, for a new node at `b` that the topology does not have yet. */
  addressOfNew(name: string, b: string): string {
    if (!name || !b) return '';
    const node = { name, kind: 'process', position: null, fields: {} };
    const nodes = [...this.topology.nodes.filter((one) => one.name !== name), node];
    const found = nextAddresses({ ...this.topology, nodes }, name, b);
    // The other end of a link between two nodes has no address, or one of its own choice.
    return this.runs(b) ? '' : (found?.[0] ?? '');
  }
}

/** The impairments of a form: those that are not empty. */
export function given(fields: Partial<Record<keyof Impairments, string>>): Impairments | undefined {
  const set = Object.entries(fields).filter(([, value]) => value?.trim());
  if (set.length === 0) return undefined;
  return Object.fromEntries(set.map(([key, value]) => [key, value!.trim()])) as unknown as Impairments;
}

/** A pair of texts of a form; `undefined` where both are empty. */
export function both(texts: string[]): [string | null, string | null] | undefined {
  const [a, b] = texts.map((text) => text.trim() || null);
  return a || b ? [a ?? null, b ?? null] : undefined;
}
