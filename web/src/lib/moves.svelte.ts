// Changes of a network's schedule on their way to another instant. The server moves one after another, and knows a change by its
// instant too: moved, it has another name.

import { SvelteMap } from 'svelte/reactivity';
import type { Act, ScheduledChange } from './types';

interface Wanted {
  what: string;
  /** Where the server has been asked to move it, s. */
  asked: number;
  /** Where it shall be in the end, s; null if it shall not come at all. */
  at: number | null;
}

/** Instant of a change, s from the start of the network. */
const secondsOf = (one: ScheduledChange) => Number(one.at_ns) / 1e9;

const same = (a: number, b: number) => Math.abs(a - b) < 1e-9;

export class Moves {
  private readonly wanted = new SvelteMap<string, Wanted>();

  constructor(
    private readonly network: string,
    /** Runs an act of the server's; false if it failed. */
    private readonly act: (request: Act) => Promise<boolean>,
    /** Told when the server shows a change by another name. */
    private readonly renamed: (from: string, to: string) => void,
  ) {}

  /** Where a change is shown, s: where it shall be, as soon as that is said. */
  placeOf(one: ScheduledChange): number {
    const wanted = this.wanted.get(one.change);
    return wanted ? (wanted.at ?? wanted.asked) : secondsOf(one);
  }

  isUnderWay(one: ScheduledChange): boolean {
    return this.wanted.has(one.change);
  }

  /** Has a change come at another instant, s. While it is under way, the last one counts. */
  move(one: ScheduledChange, at: number): void {
    this.want(one, Math.max(0, at));
  }

  /** Has a change not come. */
  remove(one: ScheduledChange): void {
    this.want(one, null);
  }

  /** To be told of each schedule that the server shows. */
  follow(schedule: ScheduledChange[]): void {
    for (const [change, wanted] of [...this.wanted]) {
      const moved = schedule.find((one) => one.what === wanted.what && same(secondsOf(one), wanted.asked));
      if (!moved && schedule.some((one) => one.change === change)) continue;
      this.wanted.delete(change);
      if (!moved) continue;
      this.renamed(change, moved.change);
      if (wanted.at !== wanted.asked) this.want(moved, wanted.at);
    }
  }

  private want(one: ScheduledChange, at: number | null): void {
    const underWay = this.wanted.get(one.change);
    if (underWay) this.wanted.set(one.change, { ...underWay, at });
    else if (at === null) void this.act({ do: 'schedule-rm', network: this.network, change: one.change });
    else if (!same(secondsOf(one), at)) void this.ask(one, at);
  }

  private async ask(one: ScheduledChange, at: number): Promise<void> {
    this.wanted.set(one.change, { what: one.what, asked: at, at });
    // To the nanosecond: a step of a second keeps the rest.
    const text = `${Number(at.toFixed(9))}s`;
    const done = await this.act({
      do: 'schedule-move',
      network: this.network,
      change: one.change,
      at: text,
    });
    if (!done) this.wanted.delete(one.change);
  }
}
