//! Marks in place of drops: explicit congestion notification (RFC 3168).

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;
const VLAN: [u8; 2] = [0x81, 0x00];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Congestion experienced: both bits of the field (RFC 3168, section 5).
const CE: u8 = 0b11;

/// Marks `frame` as one that has met congestion. Returns false if its sender does not understand marks: then it is to be dropped.
pub fn mark(frame: &mut [u8]) -> bool {
    let kind = |at: usize| frame.get(at - 2..at);
    let ip = if kind(ETHERNET) == Some(&VLAN) { ETHERNET + VLAN_TAG } else { ETHERNET };
    match kind(ip) {
        Some(kind) if kind == IPV4 => mark_ipv4(&mut frame[ip..]),
        Some(kind) if kind == IPV6 => mark_ipv6(&mut frame[ip..]),
        _ => false,
    }
}

fn mark_ipv4(packet: &mut [u8]) -> bool {
    const HEADER: usize = 20;
    if packet.len() < HEADER || packet[1] & CE == 0 {
        return false;
    }
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= CE;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    // RFC 1624, equation 3.
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    true
}

fn mark_ipv6(packet: &mut [u8]) -> bool {
    // The traffic class lies across the first two bytes; its last two bits are these of the second.
    const SHIFT: u8 = 4;
    if packet.len() < 2 || packet[1] >> SHIFT & CE == 0 {
        return false;
    }
    packet[1] |= CE << SHIFT;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with an IPv4 header whose field has these bits, and a right checksum.
    fn ipv4(ecn: u8, tag: &[u8]) -> Vec<u8> {
        let mut header =
            [0x45, 0xb8 | ecn, 0, 84, 0x12, 0x34, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        [&[2; 12], tag, &IPV4, &header, &[7; 64]].concat()
    }

    /// The sum of all words, in ones' complement: 0xffff over a header whose checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        (sum & 0xffff) as u16 + (sum >> 16) as u16
    }

    #[test]
    fn a_marked_ipv4_header_keeps_all_else_and_has_a_right_checksum() {
        for tag in [&[][..], &[0x81, 0, 0, 9]] {
            for (ecn, capable) in [(0b00, false), (0b01, true), (0b10, true), (0b11, true)] {
                let (before, mut frame) = (ipv4(ecn, tag), ipv4(ecn, tag));
                assert_eq!(mark(&mut frame), capable);
                let ip = ETHERNET + tag.len();
                assert_eq!(sum(&frame[ip..ip + 20]), 0xffff);
                assert_eq!(frame[ip + 1], if capable { 0xbb } else { 0xb8 });
                let others = (0..frame.len()).filter(|i| ![1, 10, 11].map(|n| ip + n).contains(i));
                others.for_each(|i| assert_eq!(frame[i], before[i]));
            }
        }
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        let packet = |class: u8| -> Vec<u8> {
            let head = [0x60 | class >> 4, class << 4 | 0x0c, 1, 2];
            [&[2; 12][..], &IPV6, &head, &[7; 60]].concat()
        };
        let mut frame = packet(0xb9);
        assert!(mark(&mut frame));
        assert_eq!(frame, packet(0xbb));
        assert!(!mark(&mut packet(0xb8)));
    }

    #[test]
    fn frames_of_other_kinds_and_short_ones_are_not_marked() {
        for len in 0..ETHERNET + 20 {
            assert!(!mark(&mut ipv4(0b01, &[])[..len].to_vec()), "{len}");
        }
        assert!(!mark(&mut [&[2; 12][..], &[0x08, 0x06], &[0xff; 28]].concat()));
    }
}
