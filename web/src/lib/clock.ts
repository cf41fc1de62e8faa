// Virtual clocks as segments: V(R) = v0 + (R - r0) * rate, at most the limit. All instants are BigInt nanoseconds.

import type { Clock } from './types';

/** A clock's segment, with its decimal strings parsed. */
export interface Segment {
  r0: bigint;
  v0: bigint;
  /** Virtual over real nanoseconds, as a fraction. */
  numerator: bigint;
  denominator: bigint;
  limit: bigint | null;
  wallOffset: bigint;
  frozen: boolean;
}

/** Parses a clock of the server. A frozen clock has rate 0. */
export function segment(clock: Clock): Segment {
  const [numerator, denominator] = clock.rate;
  return {
    r0: BigInt(clock.r0_ns),
    v0: BigInt(clock.v0_ns),
    numerator: clock.frozen ? 0n : BigInt(numerator),
    denominator: BigInt(denominator) || 1n,
    limit: clock.limit_ns === null ? null : BigInt(clock.limit_ns),
    wallOffset: BigInt(clock.wall_offset_ns),
    frozen: clock.frozen,
  };
}

/**
 * The virtual instant at a real instant, both CLOCK_MONOTONIC in nanoseconds. Before its segment a clock shows the
 * segment's beginning: the page's estimate of the server's clock may be early by some milliseconds.
 */
export function virtualAt(clock: Segment, real: bigint): bigint {
  const elapsed = real > clock.r0 ? real - clock.r0 : 0n;
  const instant = clock.v0 + (elapsed * clock.numerator) / clock.denominator;
  return clock.limit !== null && instant > clock.limit ? clock.limit : instant;
}

/** The wall clock inside, in nanoseconds since 1970. */
export function wallAt(clock: Segment, real: bigint): bigint {
  return virtualAt(clock, real) + clock.wallOffset;
}

/** True if the clock has run into its limit: it waits for the next round, or for a leap. */
export function atLimit(clock: Segment, real: bigint): boolean {
  return clock.limit !== null && virtualAt(clock, real) >= clock.limit;
}

/** Virtual seconds per real second; 0 for a frozen clock. */
export function rateOf(clock: Clock): number {
  return clock.rate[0] / (clock.rate[1] || 1);
}

/**
 * Estimates the server's CLOCK_MONOTONIC from stamped messages.
 *
 * A message that took longer makes the server's clock look earlier. So of the last messages the one with the
 * greatest difference is nearest to the truth; the error is its delay.
 */
export class ServerClock {
  private readonly samples: { local: number; difference: number }[] = [];
  private best = 0;
  private base = 0n;

  /** `windowMs`: how long a sample counts, so that drift and suspended hosts are followed. */
  constructor(private readonly windowMs = 60_000) {}

  get known(): boolean {
    return this.samples.length > 0;
  }

  /** Takes a message stamped `realNs` that arrived at `localMs` of performance.now(). */
  sample(realNs: bigint, localMs: number): void {
    if (!this.known) this.base = realNs - BigInt(Math.round(localMs * 1e6));
    const difference = Number(realNs - this.base) / 1e6 - localMs;
    this.samples.push({ local: localMs, difference });
    while (this.samples.length > 1 && this.samples[0]!.local < localMs - this.windowMs) this.samples.shift();
    this.best = Math.max(...this.samples.map((sample) => sample.difference));
  }

  /** Forgets all samples: another server has other instants. */
  reset(): void {
    this.samples.length = 0;
    this.best = 0;
  }

  /** The server's CLOCK_MONOTONIC at `localMs` of performance.now(), in nanoseconds. */
  at(localMs: number): bigint {
    return this.base + BigInt(Math.round((localMs + this.best) * 1e6));
  }
}
