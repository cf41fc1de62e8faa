// Reads pcapng as it arrives: section headers, interfaces, enhanced packets. Other blocks are skipped.

export interface Packet {
  /** Nanoseconds since 1970 by the clock inside. */
  instant: bigint;
  /** Length on the wire; `data` may be shorter. */
  length: number;
  /** `out`: the interface sent it. */
  direction: 'in' | 'out' | null;
  data: Uint8Array;
}

const SECTION = 0x0a0d0d0a;
const INTERFACE = 1;
const PACKET = 6;
const BYTE_ORDER = 0x1a2b3c4d;
const OPTION_RESOLUTION = 9;
const OPTION_OFFSET = 14;
const OPTION_FLAGS = 2;
/** No block of ours is longer; a longer one means that this is no pcapng. */
const LONGEST_BLOCK = 16 << 20;

interface Interface {
  /** Nanoseconds of one unit, as a fraction. */
  numerator: bigint;
  denominator: bigint;
  /** Seconds to add. */
  offset: bigint;
}

/** Takes bytes in pieces of any length, returns the packets that are complete. */
export class Reader {
  private rest = new Uint8Array(0);
  private little = true;
  private interfaces: Interface[] = [];

  push(bytes: Uint8Array): Packet[] {
    const all = new Uint8Array(this.rest.length + bytes.length);
    all.set(this.rest);
    all.set(bytes, this.rest.length);
    const packets: Packet[] = [];
    let at = 0;
    while (all.length - at >= 12) {
      const view = new DataView(all.buffer, at);
      // A section's byte order is in its header, before its length can be read.
      if (view.getUint32(0, true) === SECTION) this.little = view.getUint32(8, true) === BYTE_ORDER;
      const length = view.getUint32(4, this.little);
      if (length < 12 || length % 4 !== 0 || length > LONGEST_BLOCK)
        throw new Error(`no pcapng: a block of ${length} bytes`);
      if (all.length - at < length) break;
      const packet = this.block(new DataView(all.buffer, at, length));
      if (packet) packets.push(packet);
      at += length;
    }
    this.rest = all.slice(at);
    return packets;
  }

  private block(view: DataView): Packet | null {
    const kind = view.getUint32(0, this.little);
    if (kind === SECTION) this.interfaces = [];
    if (kind === INTERFACE) this.interfaces.push(this.interface(view));
    return kind === PACKET ? this.packet(view) : null;
  }

  private interface(view: DataView): Interface {
    const found: Interface = { numerator: 1000n, denominator: 1n, offset: 0n };
    for (const [code, value] of this.options(view, 16)) {
      if (code === OPTION_RESOLUTION) {
        const resolution = value.getUint8(0);
        const units = resolution & 0x80 ? 2n ** BigInt(resolution & 0x7f) : 10n ** BigInt(resolution);
        [found.numerator, found.denominator] = [1_000_000_000n, units];
      }
      if (code === OPTION_OFFSET) found.offset = value.getBigInt64(0, this.little);
    }
    return found;
  }

  private packet(view: DataView): Packet {
    const number = view.getUint32(8, this.little);
    const of = this.interfaces[number];
    if (!of) throw new Error(`no pcapng: a packet of interface ${number}, which is not described`);
    const units = (BigInt(view.getUint32(12, this.little)) << 32n) | BigInt(view.getUint32(16, this.little));
    const captured = view.getUint32(20, this.little);
    if (28 + captured > view.byteLength)
      throw new Error(`no pcapng: a packet of ${captured} bytes in a shorter block`);
    let direction: Packet['direction'] = null;
    for (const [code, value] of this.options(view, 28 + padded(captured))) {
      if (code === OPTION_FLAGS)
        direction = [null, 'in', 'out', null][value.getUint32(0, this.little) & 3] as Packet['direction'];
    }
    return {
      instant: (units * of.numerator) / of.denominator + of.offset * 1_000_000_000n,
      length: view.getUint32(24, this.little),
      direction,
      data: new Uint8Array(view.buffer, view.byteOffset + 28, captured).slice(),
    };
  }

  /** Options from an offset on, up to the length at the block's end. */
  private *options(view: DataView, from: number): Generator<[number, DataView]> {
    let at = from;
    while (at + 4 <= view.byteLength - 4) {
      const code = view.getUint16(at, this.little);
      const length = view.getUint16(at + 2, this.little);
      if (code === 0 || at + 4 + length > view.byteLength - 4) return;
      yield [code, new DataView(view.buffer, view.byteOffset + at + 4, length)];
      at += 4 + padded(length);
    }
  }
}

function padded(length: number): number {
  return (length + 3) & ~3;
}
