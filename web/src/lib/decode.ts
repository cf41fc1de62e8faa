// Decodes Ethernet frames up to layer 4, into the columns of a table.

export interface Decoded {
  protocol: string;
  source: string;
  destination: string;
  info: string;
}

const ICMP: Record<number, string> = {
  0: 'echo reply',
  3: 'destination unreachable',
  5: 'redirect',
  8: 'echo request',
  11: 'time exceeded',
};
const ICMPV6: Record<number, string> = {
  1: 'destination unreachable',
  2: 'packet too big',
  3: 'time exceeded',
  128: 'echo request',
  129: 'echo reply',
  130: 'multicast listener query',
  131: 'multicast listener report',
  133: 'router solicitation',
  134: 'router advertisement',
  135: 'neighbour solicitation',
  136: 'neighbour advertisement',
  143: 'multicast listener report',
};
const FLAGS = ['FIN', 'SYN', 'RST', 'PSH', 'ACK', 'URG', 'ECE', 'CWR'];
const OTHERS: Record<number, string> = {
  2: 'IGMP',
  4: 'IP in IP',
  41: 'IPv6 in IP',
  47: 'GRE',
  50: 'ESP',
  51: 'AH',
  89: 'OSPF',
  103: 'PIM',
  112: 'VRRP',
};
const OSPF = [
  '',
  'hello',
  'database description',
  'link state request',
  'link state update',
  'link state acknowledgment',
];
/** Extension headers of IPv6 that are passed over: hop by hop, routing, destination options. */
const EXTENSIONS = new Set([0, 43, 60]);
const FRAGMENT = 44;

/** Decodes a frame. Whatever is cut short is named by the layer that was reached. */
export function decode(frame: Uint8Array): Decoded {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  if (frame.length < 14)
    return { protocol: 'Ethernet', source: '', destination: '', info: `${frame.length} bytes, cut short` };
  const macs = { source: mac(frame, 6), destination: mac(frame, 0) };
  let type = view.getUint16(12);
  let at = 14;
  let tag = '';
  while ((type === 0x8100 || type === 0x88a8) && at + 4 <= frame.length) {
    tag += `VLAN ${view.getUint16(at) & 0xfff} `;
    type = view.getUint16(at + 2);
    at += 4;
  }
  const inner = ethernet(view, type, at, macs);
  return { ...macs, ...inner, info: tag + (inner.info ?? '') } as Decoded;
}

function ethernet(view: DataView, type: number, at: number, macs: { source: string }): Partial<Decoded> {
  const left = view.byteLength - at;
  if (type === 0x0800 && left >= 20) return ipv4(view, at);
  if (type === 0x86dd && left >= 40) return ipv6(view, at);
  if (type === 0x0806 && left >= 28) return arp(view, at);
  if (type <= 1500 && left >= 3 && view.getUint16(at) === 0x4242)
    return { protocol: 'STP', info: `spanning tree, from ${macs.source}` };
  if (type === 0x88cc) return { protocol: 'LLDP', info: '' };
  return {
    protocol: type <= 1500 ? '802.3' : `0x${type.toString(16).padStart(4, '0')}`,
    info: `${left} bytes`,
  };
}

function arp(view: DataView, at: number): Partial<Decoded> {
  const [sender, target] = [dotted(view, at + 14), dotted(view, at + 24)];
  const request = view.getUint16(at + 6) === 1;
  const from = mac(new Uint8Array(view.buffer, view.byteOffset), at + 8);
  return { protocol: 'ARP', info: request ? `who has ${target}? tell ${sender}` : `${sender} is at ${from}` };
}

function ipv4(view: DataView, at: number): Partial<Decoded> {
  const header = (view.getUint8(at) & 15) * 4;
  const fragment = view.getUint16(at + 6) & 0x1fff;
  const ends = { source: dotted(view, at + 12), destination: dotted(view, at + 16) };
  const protocol = view.getUint8(at + 9);
  if (fragment > 0)
    return { ...ends, protocol: 'IPv4', info: `fragment at ${fragment * 8} of ${nameOf(protocol)}` };
  const end = Math.min(view.byteLength, at + view.getUint16(at + 2));
  return transport(view, protocol, at + header, end, ends, ICMP);
}

function ipv6(view: DataView, at: number): Partial<Decoded> {
  const ends = { source: coloned(view, at + 8), destination: coloned(view, at + 24) };
  const end = Math.min(view.byteLength, at + 40 + view.getUint16(at + 4));
  let next = view.getUint8(at + 6);
  let position = at + 40;
  while (EXTENSIONS.has(next) && position + 8 <= end) {
    next = view.getUint8(position);
    position += (view.getUint8(position + 1) + 1) * 8;
  }
  if (next === FRAGMENT && position + 8 <= end) {
    const offset = view.getUint16(position + 2) & 0xfff8;
    if (offset > 0) return { ...ends, protocol: 'IPv6', info: `fragment at ${offset}` };
    next = view.getUint8(position);
    position += 8;
  }
  return transport(view, next, position, end, ends, ICMPV6);
}

type Ends = { source: string; destination: string };

function transport(
  view: DataView,
  protocol: number,
  at: number,
  end: number,
  ends: Ends,
  icmp: Record<number, string>,
): Partial<Decoded> {
  const left = end - at;
  if (protocol === 6 && left >= 20) return tcp(view, at, end, ends);
  if (protocol === 17 && left >= 8) {
    return { ...ported(view, at, ends), protocol: 'UDP', info: `${view.getUint16(at + 4) - 8} bytes` };
  }
  if ((protocol === 1 || protocol === 58) && left >= 8) {
    const type = view.getUint8(at);
    const echo = (icmp === ICMP && (type === 0 || type === 8)) || type === 128 || type === 129;
    const rest = echo ? `, id ${view.getUint16(at + 4)}, seq ${view.getUint16(at + 6)}` : '';
    return {
      ...ends,
      protocol: icmp === ICMP ? 'ICMP' : 'ICMPv6',
      info: (icmp[type] ?? `type ${type}`) + rest,
    };
  }
  if (protocol === 89 && left >= 24)
    return { ...ends, protocol: 'OSPF', info: OSPF[view.getUint8(at + 1)] ?? '' };
  return { ...ends, protocol: nameOf(protocol), info: `${Math.max(0, left)} bytes` };
}

function tcp(view: DataView, at: number, end: number, ends: Ends): Partial<Decoded> {
  const bits = view.getUint8(at + 13);
  const flags = FLAGS.filter((_, bit) => bits & (1 << bit)).join(' ');
  const length = Math.max(0, end - at - (view.getUint8(at + 12) >> 4) * 4);
  const acknowledged = bits & 16 ? ` ack ${view.getUint32(at + 8)}` : '';
  const info = `[${flags}] seq ${view.getUint32(at + 4)}${acknowledged} win ${view.getUint16(at + 14)} len ${length}`;
  return { ...ported(view, at, ends), protocol: 'TCP', info };
}

function ported(view: DataView, at: number, ends: Ends): Ends {
  const join = (address: string, port: number) =>
    address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
  return {
    source: join(ends.source, view.getUint16(at)),
    destination: join(ends.destination, view.getUint16(at + 2)),
  };
}

function nameOf(protocol: number): string {
  return (
    ({ 1: 'ICMP', 6: 'TCP', 17: 'UDP', 58: 'ICMPv6' } as Record<number, string>)[protocol] ??
    OTHERS[protocol] ??
    `IP ${protocol}`
  );
}

function mac(bytes: Uint8Array, at: number): string {
  return Array.from(bytes.subarray(at, at + 6), (one) => one.toString(16).padStart(2, '0')).join(':');
}

function dotted(view: DataView, at: number): string {
  return [0, 1, 2, 3].map((index) => view.getUint8(at + index)).join('.');
}

/** An IPv6 address after RFC 5952: the longest run of two or more zeros becomes `::`. */
function coloned(view: DataView, at: number): string {
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(at + 2 * index));
  let [best, length] = [-1, 1];
  for (let from = 0; from < 8; from += 1) {
    let to = from;
    while (to < 8 && groups[to] === 0) to += 1;
    if (to - from > length) [best, length] = [from, to - from];
  }
  const text = (part: number[]) => part.map((one) => one.toString(16)).join(':');
  return best < 0 ? text(groups) : `${text(groups.slice(0, best))}::${text(groups.slice(best + length))}`;
}

/** True if all words of a filter occur: "tcp 10.0.0.1" or "udp :53". */
export function passes(decoded: Decoded, words: readonly string[]): boolean {
  const text = `${decoded.protocol} ${decoded.source} ${decoded.destination} ${decoded.info}`.toLowerCase();
  return words.every((word) => text.includes(word));
}
