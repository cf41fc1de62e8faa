// Values as people write them in topology files: rates, delays, percentages.

const RATES: Record<string, number> = { bit: 1, kbit: 1e3, mbit: 1e6, gbit: 1e9, tbit: 1e12 };
const DELAYS: Record<string, number> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  h: 3600e9,
  d: 86_400e9,
};

/** Bits per second of "10mbit"; null without a limit or for other text. */
export function bitRate(text: string | number | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const found = /^\s*([\d.]+)\s*([kmgt]?)(?:bit|bps|bit\/s)?\s*$/i.exec(String(text));
  if (!found) return null;
  return Number(found[1]) * RATES[`${found[2]!.toLowerCase()}bit`]!;
}

/** A bit rate with the largest unit that keeps it exact enough to read. */
export function bitRateText(bits: number): string {
  for (const unit of ['tbit', 'gbit', 'mbit', 'kbit'] as const) {
    if (bits >= RATES[unit]!) return `${Number((bits / RATES[unit]!).toPrecision(3))}${unit}`;
  }
  return `${Math.max(8, Math.round(bits))}bit`;
}

/** Nanoseconds of "5ms" or "1m30s"; a number alone is in seconds. Null for other text. */
export function delayNs(text: string | number | null | undefined): number | null {
  if (text === null || text === undefined) return null;
  const whole = String(text).trim();
  if (/^[\d.]+$/.test(whole)) return Number(whole) * 1e9;
  const parts = [...whole.matchAll(/([\d.]+)\s*([a-zµ]+)/gi)];
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== whole.replace(/\s+(?=[\d])/g, ''))
    return null;
  let sum = 0;
  for (const [, value, unit] of parts) {
    const factor = DELAYS[unit!];
    if (factor === undefined) return null;
    sum += Number(value) * factor;
  }
  return sum;
}

/** A delay with the unit that people would take, to four digits or to whole seconds. */
export function delayText(ns: number): string {
  if (ns === 0) return '0';
  for (const [unit, factor] of [
    ['s', 1e9],
    ['ms', 1e6],
    ['us', 1e3],
  ] as const) {
    const value = ns / factor;
    if (value >= 1)
      return `${Number(value.toPrecision(Math.max(4, Math.round(value).toString().length)))}${unit}`;
  }
  return `${Math.round(ns)}ns`;
}

/** The share of "0.1%"; null for other text. */
export function share(text: string | number | null | undefined): number | null {
  const found = /^\s*([\d.]+)\s*%\s*$/.exec(String(text ?? ''));
  return found ? Number(found[1]) / 100 : null;
}

export function shareText(value: number): string {
  return `${Number((value * 100).toPrecision(3))}%`;
}

/** A slider's place, 0 to 1, for a value on a logarithmic scale from `least` to `most`; 0 is below the scale. */
export function toScale(value: number, least: number, most: number): number {
  if (value < least) return 0;
  return Math.min(1, Math.log(value / least) / Math.log(most / least));
}

export function fromScale(place: number, least: number, most: number): number {
  return least * (most / least) ** place;
}
