//! Captures: pcapng with timestamps of the network's own wall clock.

use lorentz_clock::WallTime;

/// Direction of a frame at an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CaptureDirection {
    /// The interface received the frame.
    In = 1,
    /// The interface sent the frame.
    Out = 2,
}

/// The beginning of a capture: the section, and one interface with timestamps in nanoseconds.
pub(crate) fn header(interface: &str) -> Vec<u8> {
    const SECTION: u32 = 0x0a0d_0d0a;
    const INTERFACE: u32 = 1;
    const ETHERNET: u16 = 1;
    const NAME: u16 = 2;
    const RESOLUTION: u16 = 9;
    let mut section = Vec::new();
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend([1_u16, 0].map(u16::to_le_bytes).concat());
    // The section's length, which is not known beforehand.
    section.extend(u64::MAX.to_le_bytes());
    let mut description = Vec::new();
    description.extend([ETHERNET, 0].map(u16::to_le_bytes).concat());
    // No limit to the length of frames.
    description.extend(0_u32.to_le_bytes());
    option(&mut description, NAME, interface.as_bytes());
    option(&mut description, RESOLUTION, &[9]);
    option(&mut description, 0, &[]);
    [block(SECTION, &section), block(INTERFACE, &description)].concat()
}

/// The block of one frame.
pub(crate) fn frame(at: WallTime, direction: CaptureDirection, frame: &[u8]) -> Vec<u8> {
    const ENHANCED_PACKET: u32 = 6;
    const FLAGS: u16 = 2;
    let nanos = at.as_nanos() as u64;
    let length = frame.len() as u32;
    let mut body = Vec::with_capacity(frame.len() + 48);
    for word in [0, (nanos >> 32) as u32, nanos as u32, length, length] {
        body.extend(word.to_le_bytes());
    }
    body.extend(frame);
    pad(&mut body);
    option(&mut body, FLAGS, &(direction as u32).to_le_bytes());
    option(&mut body, 0, &[]);
    block(ENHANCED_PACKET, &body)
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    to.extend([code, value.len() as u16].map(u16::to_le_bytes).concat());
    to.extend(value);
    pad(to);
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole() {
        let at = WallTime { secs: 2_147_483_647, nanos: 123_456_789 };
        let all = [header("r1:eth1"), frame(at, CaptureDirection::Out, &[7; 61])].concat();
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        let (mut at, mut kinds) = (0, Vec::new());
        while at < all.len() {
            let length = word(at + 4) as usize;
            assert_eq!((length % 4, word(at + length - 4) as usize), (0, length));
            kinds.push((word(at), at));
            at += length;
        }
        let (packet, start) = kinds[2];
        assert_eq!((kinds.len(), kinds[0].0, kinds[1].0, packet), (3, 0x0a0d_0d0a, 1, 6));
        let nanos = u64::from(word(start + 12)) << 32 | u64::from(word(start + 16));
        assert_eq!(nanos, 2_147_483_647_123_456_789);
        assert_eq!(word(start + 20), 61);
    }
}
