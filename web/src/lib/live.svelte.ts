// The state of everything that runs, kept by one stream of server-sent events.

import { SvelteMap } from 'svelte/reactivity';
import { ServerClock } from './clock';
import { open, session } from './session.svelte';
import type { Container, Experiment, Network, State, StateChange } from './types';

/** The stream counts as lost after this long without a message; the server sends a tick each 5 s. */
const SILENCE_MS = 13_000;
const RETRY_MS = 1_000;

class Live {
  networks = new SvelteMap<string, Network>();
  experiments = new SvelteMap<string, Experiment>();
  containers = new SvelteMap<string, Container>();
  /** `connecting`: no state yet. `lost`: the state shown is of `lostAt`. */
  phase = $state<'connecting' | 'live' | 'lost'>('connecting');
  /** When the stream broke, in ms of performance.now(). */
  lostAt = $state(0);
  /** The last gap that a reconnection closed, in seconds. */
  missed = $state<number | null>(null);

  readonly clock = new ServerClock();
  private source: EventSource | null = null;
  private heard = 0;
  private wallOffset = 0n;
  private watch: ReturnType<typeof setInterval> | undefined;

  /** Opens the stream, and opens it anew whenever it breaks. */
  start(): void {
    if (this.source) return;
    this.connect();
    this.watch ??= setInterval(() => {
      if (this.phase === 'live' && performance.now() - this.heard > SILENCE_MS) this.lose();
      if (this.phase === 'lost' && this.source?.readyState === EventSource.CLOSED) void this.again();
    }, RETRY_MS);
  }

  stop(): void {
    clearInterval(this.watch);
    this.watch = undefined;
    this.source?.close();
    this.source = null;
  }

  /** CLOCK_MONOTONIC of the server now, in nanoseconds; null before the first message. */
  real(): bigint | null {
    return this.clock.known ? this.clock.at(performance.now()) : null;
  }

  /** The server's wall clock now, in nanoseconds since 1970. */
  wall(): bigint | null {
    const real = this.real();
    return real === null ? null : real + this.wallOffset;
  }

  /** A server that was restarted has other tokens; then the page locks. */
  private async again(): Promise<void> {
    await open();
    if (session.phase === 'open') this.connect();
    else if (session.phase === 'locked') this.stop();
    else session.phase = 'open';
  }

  private connect(): void {
    this.source?.close();
    const source = new EventSource('/api/v1/live');
    this.source = source;
    source.addEventListener('state', (event) => this.whole(JSON.parse(event.data) as State));
    source.addEventListener('change', (event) => this.change(JSON.parse(event.data) as StateChange));
    source.addEventListener('tick', (event) => this.hear(JSON.parse(event.data) as { real_ns: string }));
    source.addEventListener('error', () => this.lose());
  }

  private lose(): void {
    if (this.phase !== 'live') return;
    this.phase = 'lost';
    this.lostAt = this.heard;
  }

  private hear(now: { real_ns: string; wall_ns?: string }): void {
    const local = performance.now();
    const real = BigInt(now.real_ns);
    // After a suspend, or on another machine behind the same address, old samples are worthless.
    if (this.clock.known && Math.abs(Number(real - this.clock.at(local))) > 2e9) this.clock.reset();
    this.clock.sample(real, local);
    if (now.wall_ns !== undefined) this.wallOffset = BigInt(now.wall_ns) - real;
    if (this.phase === 'lost') this.missed = (local - this.lostAt) / 1000;
    this.heard = local;
    this.phase = 'live';
  }

  private whole(state: State): void {
    this.hear(state.now);
    replace(this.networks, state.networks);
    replace(this.experiments, state.experiments);
    replace(this.containers, state.containers);
  }

  private change(change: StateChange): void {
    this.hear(change.now);
    merge(this.networks, change.networks);
    merge(this.experiments, change.experiments);
    merge(this.containers, change.containers);
  }
}

function replace<T extends { name: string }>(kept: SvelteMap<string, T>, all: T[]): void {
  const names = new Set(all.map((one) => one.name));
  for (const name of [...kept.keys()]) if (!names.has(name)) kept.delete(name);
  for (const one of all) kept.set(one.name, one);
}

function merge<T>(kept: SvelteMap<string, T>, changed: { [name in string]?: T | null }): void {
  for (const [name, one] of Object.entries(changed)) {
    if (one === null || one === undefined) kept.delete(name);
    else kept.set(name, one);
  }
}

export const live = new Live();
