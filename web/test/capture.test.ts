import { describe, expect, it } from 'vitest';
import { decode, passes } from '../src/lib/decode';
import { Reader } from '../src/lib/pcapng';

const hex = (text: string) =>
  Uint8Array.from(text.replace(/\s/g, '').match(/../g) ?? [], (one) => parseInt(one, 16));

const MACS = '020000000002 020000000001';
// An echo request from 10.0.0.1 to 10.0.0.2: id 7, seq 258.
const PING = hex(`${MACS} 0800 4500001c 00004000 40010000 0a000001 0a000002 0800 0000 0007 0102`);
const SYN = hex(
  `${MACS} 0800 45000028 00004000 40060000 0a000001 0a000002 9c40 0050 00000001 00000000 50 02 ffff 0000 0000`,
);
const DNS6 =
  hex(`${MACS} 86dd 60000000 000c 11 40 fd000000000000000000000000000001 fd000000000000010000000000000002
  c000 0035 000c 0000 61626364`);
const ARP = hex(`${MACS} 0806 0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002`);

/** A capture as Lorentz writes it: nanoseconds, flags for the direction. */
function capture(
  frames: { at: bigint; frame: Uint8Array; out: boolean }[],
  little = true,
  resolution = 9,
): Uint8Array {
  const parts: number[] = [];
  const word = (value: number, bytes = 4) => {
    const all = Array.from({ length: bytes }, (_, index) => Math.floor(value / 2 ** (8 * index)) & 0xff);
    return little ? all : all.reverse();
  };
  const block = (kind: number, body: number[]) =>
    parts.push(...word(kind), ...word(body.length + 12), ...body, ...word(body.length + 12));
  const pad = (bytes: number[]) => [...bytes, ...Array.from({ length: -bytes.length & 3 }, () => 0)];
  block(0x0a0d0d0a, [
    ...word(0x1a2b3c4d),
    ...word(1, 2),
    ...word(0, 2),
    ...Array.from({ length: 8 }, () => 0xff),
  ]);
  block(1, [
    ...word(1, 2),
    ...word(0, 2),
    ...word(0),
    ...word(9, 2),
    ...word(1, 2),
    ...pad([resolution]),
    ...word(0),
  ]);
  // A block of statistics, which is skipped.
  block(5, [...word(0), ...word(0), ...word(0)]);
  for (const { at, frame, out } of frames) {
    const head = [0, Number(at >> 32n), Number(at & 0xffffffffn), frame.length, frame.length].flatMap((one) =>
      word(one),
    );
    block(6, [...head, ...pad([...frame]), ...word(2, 2), ...word(4, 2), ...word(out ? 2 : 1), ...word(0)]);
  }
  return Uint8Array.from(parts);
}

const FRAMES = [
  { at: 2_147_483_647_123_456_789n, frame: PING, out: true },
  { at: 2_147_483_647_123_456_790n, frame: SYN, out: false },
];

describe('pcapng', () => {
  it.each([true, false])(
    'keeps instants to the nanosecond, in pieces of any length (little endian: %s)',
    (little) => {
      const bytes = capture(FRAMES, little);
      for (const piece of [1, 7, 64, bytes.length]) {
        const reader = new Reader();
        const packets = [];
        for (let at = 0; at < bytes.length; at += piece)
          packets.push(...reader.push(bytes.slice(at, at + piece)));
        expect(packets.map((one) => one.instant)).toEqual(FRAMES.map((one) => one.at));
        expect(packets.map((one) => one.direction)).toEqual(['out', 'in']);
        expect(packets[0]!.data).toEqual(PING);
      }
    },
  );

  it('knows other resolutions', () => {
    expect(new Reader().push(capture([{ at: 5n, frame: PING, out: true }], true, 6))[0]!.instant).toBe(5000n);
    expect(new Reader().push(capture([{ at: 3n, frame: PING, out: true }], true, 0x81))[0]!.instant).toBe(
      1_500_000_000n,
    );
  });

  it('refuses other bytes', () => {
    expect(() => new Reader().push(new Uint8Array(40).fill(0xff))).toThrow('no pcapng');
  });
});

describe('frames', () => {
  it('are decoded to layer 4', () => {
    expect(decode(PING)).toEqual({
      protocol: 'ICMP',
      source: '10.0.0.1',
      destination: '10.0.0.2',
      info: 'echo request, id 7, seq 258',
    });
    expect(decode(SYN)).toEqual({
      protocol: 'TCP',
      source: '10.0.0.1:40000',
      destination: '10.0.0.2:80',
      info: '[SYN] seq 1 win 65535 len 0',
    });
    expect(decode(DNS6)).toEqual({
      protocol: 'UDP',
      source: '[fd00::1]:49152',
      destination: '[fd00:0:0:1::2]:53',
      info: '4 bytes',
    });
    expect(decode(ARP)).toMatchObject({ protocol: 'ARP', info: 'who has 10.0.0.2? tell 10.0.0.1' });
  });

  it('with a VLAN, or cut anywhere, are no error', () => {
    const tagged = new Uint8Array([...PING.slice(0, 12), 0x81, 0, 0, 5, ...PING.slice(12)]);
    expect(decode(tagged)).toMatchObject({ protocol: 'ICMP', info: 'VLAN 5 echo request, id 7, seq 258' });
    for (const frame of [PING, SYN, DNS6, ARP])
      for (let length = 0; length < frame.length; length += 1)
        expect(decode(frame.slice(0, length))).toHaveProperty('protocol');
  });

  it('pass a filter if all of its words occur', () => {
    expect(passes(decode(SYN), ['tcp', ':80'])).toBe(true);
    expect(passes(decode(SYN), ['udp'])).toBe(false);
    expect(passes(decode(SYN), [])).toBe(true);
  });
});
