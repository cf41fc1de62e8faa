// Numbers as people read them.

const SECOND = 1_000_000_000n;

/** A span of nanoseconds as [days d] H:MM:SS.mmm; `digits` after the point, 0 to 9. */
export function span(ns: bigint, digits = 3): string {
  const sign = ns < 0n ? '−' : '';
  const size = ns < 0n ? -ns : ns;
  const seconds = size / SECOND;
  const days = seconds / 86_400n;
  const hours = (seconds / 3600n) % 24n;
  const two = (value: bigint) => value.toString().padStart(2, '0');
  const clock = `${hours}:${two((seconds / 60n) % 60n)}:${two(seconds % 60n)}`;
  return `${sign}${days > 0n ? `${days} d ` : ''}${clock}${fraction(size, digits)}`;
}

function fraction(size: bigint, digits: number): string {
  return digits === 0 ? '' : '.' + (size % SECOND).toString().padStart(9, '0').slice(0, digits);
}

/** Nanoseconds since 1970 as YYYY-MM-DD HH:MM:SS.mmm in UTC. */
export function date(ns: bigint, digits = 3): string {
  const seconds = ns / SECOND - (ns % SECOND < 0n ? 1n : 0n);
  const day = new Date(Number(seconds) * 1000);
  if (Number.isNaN(day.getTime())) return `${seconds} s`;
  const text = day.toISOString();
  return `${text.slice(0, text.length - 14)} ${text.slice(-13, -5)}${fraction(((ns % SECOND) + SECOND) % SECOND, digits)}`;
}

/** A duration in nanoseconds with the unit that leaves one to three digits before the point. */
export function duration(ns: number): string {
  const size = Math.abs(ns);
  if (size < 1e3) return `${round(ns)} ns`;
  if (size < 1e6) return `${round(ns / 1e3)} µs`;
  if (size < 1e9) return `${round(ns / 1e6)} ms`;
  if (size < 120e9) return `${round(ns / 1e9)} s`;
  return span(BigInt(Math.round(ns)), 0);
}

/** Three significant digits, no trailing zeros. */
export function round(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 1000) return value.toFixed(0);
  return String(Number(value.toPrecision(3)));
}

export function percent(share: number | null | undefined): string {
  return share === null || share === undefined ? '–' : `${round(share * 100)} %`;
}

export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${round(count)} ${units[unit]}`;
}

export function count(value: number): string {
  return value.toLocaleString('en').replaceAll(',', ' ');
}

/** A rate and the TDF that says the same: "×0.1 (TDF 10)". */
export function rate(fraction: readonly [number, number] | readonly number[]): string {
  const [over = 1, under = 1] = fraction;
  const value = over / (under || 1);
  if (value === 1) return '×1';
  if (value <= 0) return '×0';
  return value < 1 ? `×${round(value)} · TDF ${round(1 / value)}` : `×${round(value)}`;
}

/** Plural by a count: plural(2, 'node') is "2 nodes". */
export function plural(
  value: number,
  noun: string,
  several = noun + (/(s|x|ch|sh)$/.test(noun) ? 'es' : 's'),
): string {
  return `${count(value)} ${value === 1 ? noun : several}`;
}

/** A verdict and its advice as one sentence. */
export function sentence(verdict: { text: string; advice: string | null }): string {
  return verdict.advice === null ? verdict.text : `${verdict.text}: ${verdict.advice}`;
}
