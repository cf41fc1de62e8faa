import { describe, expect, it } from 'vitest';
import { atLimit, segment, ServerClock, virtualAt, wallAt } from '../src/lib/clock';
import type { Clock } from '../src/lib/types';

// Beyond 2^53: a double would round.
const R0 = 9_007_199_254_740_993n;

function clock(over: Partial<Clock> = {}): Clock {
  return {
    r0_ns: String(R0),
    v0_ns: '1000',
    rate: [1, 1],
    limit_ns: null,
    wall_offset_ns: '4102444800000000000',
    boot_offset_ns: '0',
    frozen: false,
    skips_idle: false,
    pending: [],
    error: null,
    ...over,
  };
}

describe('a segment', () => {
  it('is exact at instants beyond 2^53', () => {
    expect(virtualAt(segment(clock()), R0 + 1n)).toBe(1001n);
    expect(wallAt(segment(clock()), R0)).toBe(4102444800000001000n);
  });

  it('passes at its rate, rounded down, and not before its beginning', () => {
    const third = segment(clock({ rate: [1, 3] }));
    expect(virtualAt(third, R0 + 8n)).toBe(1002n);
    expect(virtualAt(third, R0 - 5n)).toBe(1000n);
    expect(virtualAt(segment(clock({ rate: [1000, 1] })), R0 + 7n)).toBe(8000n);
  });

  it('stands still while it is frozen, whatever its rate is afterwards', () => {
    const frozen = segment(clock({ frozen: true, rate: [2, 1] }));
    expect(virtualAt(frozen, R0 + 10n ** 12n)).toBe(1000n);
  });

  it('stops at its limit', () => {
    const limited = segment(clock({ limit_ns: '1500' }));
    expect(virtualAt(limited, R0 + 499n)).toBe(1499n);
    expect(atLimit(limited, R0 + 499n)).toBe(false);
    expect(virtualAt(limited, R0 + 5000n)).toBe(1500n);
    expect(atLimit(limited, R0 + 500n)).toBe(true);
  });
});

describe("the server's clock", () => {
  it('takes the message that was fastest', () => {
    const server = new ServerClock();
    const start = 5_000_000_000_000n;
    // The server is `start` ahead; messages take 40, 2 and 90 ms.
    for (const [sent, delay] of [
      [0, 40],
      [100, 2],
      [200, 90],
    ] as const)
      server.sample(start + BigInt(sent) * 1_000_000n, sent + delay);
    const error = Number(server.at(1000) - (start + 1_000_000_000n)) / 1e6;
    expect(error).toBeCloseTo(-2, 3);
  });

  it('forgets samples that are old, and all when it is reset', () => {
    const server = new ServerClock(1000);
    server.sample(1_000_000_000n, 0);
    server.sample(3_000_000_000n - 50_000_000n, 2000);
    expect(server.at(2000)).toBe(2_950_000_000n);
    server.reset();
    expect(server.known).toBe(false);
  });
});
