import { describe, expect, it } from 'vitest';
import {
  bitRate,
  bitRateText,
  delayNs,
  delayText,
  fromScale,
  share,
  shareText,
  toScale,
} from '../src/lib/units';

describe('values as people write them', () => {
  it('reads rates', () => {
    expect(['10mbit', '2.5gbit', '500kbit', '8bit', '1tbit'].map(bitRate)).toEqual([
      1e7, 2.5e9, 5e5, 8, 1e12,
    ]);
    expect(['none', '', null, 'fast', '10 meters'].map(bitRate)).toEqual([null, null, null, null, null]);
  });

  it('reads delays; a number alone is in seconds', () => {
    expect(['5ms', '1.5s', '1m30s', '250us', '0', '2'].map(delayNs)).toEqual([
      5e6, 1.5e9, 90e9, 250e3, 0, 2e9,
    ]);
    expect(['soon', '5 parsecs', null].map(delayNs)).toEqual([null, null, null]);
  });

  it('writes what it reads', () => {
    for (const text of ['10mbit', '2.5gbit', '9bit']) expect(bitRateText(bitRate(text)!)).toBe(text);
    for (const text of ['5ms', '1.5s', '250us', '7ns', '0', '86399s'])
      expect(delayText(delayNs(text)!)).toBe(text);
    for (const text of ['0.1%', '50%', '100%']) expect(shareText(share(text)!)).toBe(text);
    expect(share('1')).toBeNull();
  });
});

it('a slider reaches both ends of its scale', () => {
  expect([
    toScale(1e3, 1e3, 1e9),
    toScale(1e9, 1e3, 1e9),
    toScale(0, 1e3, 1e9),
    toScale(1e12, 1e3, 1e9),
  ]).toEqual([0, 1, 0, 1]);
  expect(fromScale(0.5, 1, 1e6)).toBeCloseTo(1e3, 6);
});
