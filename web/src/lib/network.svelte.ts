// One network of the live state, indexed for the parts of its view.

import { getContext, setContext } from 'svelte';
import { Places } from './layout';
import { live } from './live.svelte';
import { session } from './session.svelte';
import type { Link, Node } from './types';

const KEY = Symbol('network');

export interface Terminal {
  id: number;
  kind: 'terminal' | 'output' | 'capture';
  /** The container of a terminal, the node of an output, the end of a capture. */
  target: string;
}

/** A change of the topology that a person is about to make. */
export type Edit =
  /** The two nodes of a link are being chosen. */
  | { kind: 'pick'; from: string | null }
  | { kind: 'link'; ends: [string, string] }
  | { kind: 'node' }
  | { kind: 'remove'; what: 'node' | 'link'; name: string };

export class NetworkModel {
  readonly network = $derived.by(() => live.networks.get(this.name));
  readonly nodes = $derived.by(
    () => new Map<string, Node>(this.network?.nodes.map((one) => [one.name, one])),
  );
  readonly links = $derived.by(() => new Map<string, Link>(this.network?.links.map((one) => [one.id, one])));
  /** Tabs of the dock. */
  docked = $state<Terminal[]>([]);
  shown = $state(0);
  edit = $state<Edit | null>(null);
  /** Places on the screen, for all pictures of the network. */
  readonly places = new Places();
  private next = 1;

  constructor(
    readonly name: string,
    /** Selects a node or link, or nothing. */
    readonly select: (kind: 'node' | 'link' | null, name?: string) => void,
  ) {}

  /** Why nodes and links cannot come or go; null if they can. */
  get fixed(): string | null {
    if (session.about?.read_only) return 'This server refuses changes.';
    return this.network?.emulator ? null : 'The emulator of this network has ended.';
  }

  get picking(): boolean {
    return this.edit?.kind === 'pick';
  }

  /** Whether a link may end at a node. A wlan takes no members while it runs. */
  takesLinks(name: string): boolean {
    return this.network?.switches.find((one) => one.name === name)?.kind !== 'wlan';
  }

  /** Chooses a node for a link; the second one opens the form. */
  pick(name: string): void {
    if (this.edit?.kind !== 'pick' || !this.takesLinks(name)) return;
    const { from } = this.edit;
    if (from === null || from === name) this.edit = { kind: 'pick', from: from === name ? null : name };
    else this.edit = { kind: 'link', ends: [from, name] };
  }

  /** Opens a tab; an output or capture that is open comes to the front. */
  open(kind: Terminal['kind'], target: string): void {
    const there =
      kind !== 'terminal' && this.docked.find((one) => one.kind === kind && one.target === target);
    if (there) {
      this.shown = there.id;
      return;
    }
    const id = this.next++;
    this.docked.push({ id, kind, target });
    this.shown = id;
  }

  close(id: number): void {
    const at = this.docked.findIndex((one) => one.id === id);
    this.docked.splice(at, 1);
    if (this.shown === id) this.shown = this.docked[Math.max(0, at - 1)]?.id ?? 0;
  }
}

export function provide(model: NetworkModel): NetworkModel {
  return setContext(KEY, model);
}

export function model(): NetworkModel {
  return getContext<NetworkModel>(KEY);
}
