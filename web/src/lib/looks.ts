// How links and nodes look: width by capacity, class by use.

import { bitRate } from './units';
import type { Link } from './types';

/** Width of a line in pixels for a capacity in bit/s: 1.5 for 1 kbit/s and less, 7 for 10 Gbit/s and more. */
export function widthOf(bits: number | null): number {
  if (bits === null) return 3;
  return Math.min(7, Math.max(1.5, 1.5 + (5.5 * (Math.log10(bits) - 3)) / 7));
}

export type Use = 'down' | 'idle' | 'low' | 'high' | 'full';

/** The use of a link's busier direction. */
export function useOf(link: Link): Use {
  if (!link.up) return 'down';
  const most = Math.max(...link.directions.map((one) => one.utilisation ?? 0));
  if (most >= 0.9) return 'full';
  if (most >= 0.6) return 'high';
  if (most > 0.001 || link.directions.some((one) => (one.bits_per_second ?? 0) > 0)) return 'low';
  return 'idle';
}

/** The least capacity of both directions. */
export function capacityOf(link: Link): number | null {
  const rates = link.directions.map((one) => bitRate(one.impairments.rate)).filter((one) => one !== null);
  return rates.length ? Math.min(...rates) : null;
}

/** A line on a link's capacity and delay: "10mbit · 5ms". */
export function captionOf(link: Link): string {
  const [there, back] = link.directions;
  const both = (key: 'rate' | 'delay' | 'loss') => {
    const [a, b] = [there.impairments[key], back.impairments[key]];
    return a === b ? a : [a ?? '–', b ?? '–'].join(' / ');
  };
  const loss = both('loss');
  const parts = [both('rate'), both('delay'), loss && loss !== '0%' ? `loss ${loss}` : null];
  return parts.filter((part) => part && part !== 'none' && part !== '0').join(' · ');
}

export function dropsOf(link: Link): number {
  return link.directions[0].counts.dropped + link.directions[1].counts.dropped;
}
