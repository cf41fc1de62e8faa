import { describe, expect, it } from 'vitest';
import { bytes, date, duration, percent, plural, rate, span } from '../src/lib/format';

describe('spans and dates', () => {
  it('shows hours, days and signs', () => {
    expect(span(3_723_004_005_006n)).toBe('1:02:03.004');
    expect(span(3_723_004_005_006n, 9)).toBe('1:02:03.004005006');
    expect(span(-1_500_000_000n, 1)).toBe('−0:00:01.5');
    expect(span(90_061_000_000_000n, 0)).toBe('1 d 1:01:01');
  });

  it('shows dates in UTC to the nanosecond, also before 1970', () => {
    expect(date(2_147_483_647_123_456_789n, 9)).toBe('2038-01-19 03:14:07.123456789');
    expect(date(-1n, 9)).toBe('1969-12-31 23:59:59.999999999');
    expect(date(0n, 0)).toBe('1970-01-01 00:00:00');
  });
});

it('numbers have units that fit', () => {
  expect([0, 999, 41_000, 3_200_000, 2.5e9].map(duration)).toEqual([
    '0 ns',
    '999 ns',
    '41 µs',
    '3.2 ms',
    '2.5 s',
  ]);
  expect([bytes(999), bytes(17_000_000)]).toEqual(['999 B', '17 MB']);
  expect([percent(0.123), percent(null)]).toEqual(['12.3 %', '–']);
  expect([rate([1, 10]), rate([2, 1]), rate([1, 1])]).toEqual(['×0.1 · TDF 10', '×2', '×1']);
  expect([plural(1, 'node'), plural(1200, 'switch')]).toEqual(['1 node', '1 200 switches']);
});
