//! Loops of switches with a spanning tree.

use super::*;

const SECOND: i64 = 1_000_000_000;

/// Switches, a station at each, and links between the switches.
struct Ring {
    emulator: Emulator,
    stations: Vec<StationId>,
    links: Vec<LinkId>,
    now: i64,
}

impl Ring {
    /// `kinds` are the switches; `joined` are pairs of them, each with the link's impairments.
    fn new(kinds: &[SwitchKind], joined: &[(usize, usize, &str)]) -> Ring {
        let mut emulator = Emulator::new(0);
        let switches: Vec<SwitchId> = kinds.iter().map(|kind| emulator.add_switch(*kind)).collect();
        let plain = Impairments::default();
        let station = |emulator: &mut Emulator, switch: SwitchId| {
            let station = emulator.add_station();
            let ends = [Attachment::Station(station), Attachment::Switch(switch)];
            emulator.connect(ends, [&plain; 2]);
            station
        };
        let stations = switches.iter().map(|one| station(&mut emulator, *one)).collect();
        let links = joined
            .iter()
            .map(|(a, b, text)| {
                let impairments: Impairments = serde_saphyr::from_str(text).unwrap();
                let ends = [switches[*a], switches[*b]].map(Attachment::Switch);
                emulator.connect(ends, [&impairments; 2])
            })
            .collect();
        emulator.start(VirtualInstant(0));
        Ring { emulator, stations, links, now: 0 }
    }

    /// Lets `seconds` pass. Returns the stations that got a frame which is no BPDU, one entry for each.
    fn wait(&mut self, seconds: i64) -> Vec<usize> {
        self.now += seconds * SECOND;
        let mut arrived = Vec::new();
        let mut count = 0;
        self.emulator.advance(VirtualInstant(self.now), &mut |station, _, frame: Frame| {
            count += 1;
            assert!(count < 10_000, "a frame goes round in a loop");
            if frame[0] != 1 {
                arrived.push(station.0);
            }
        });
        arrived.sort_unstable();
        arrived
    }

    /// Sends a frame to all. Returns who got it within a second.
    fn broadcast(&mut self, from: usize) -> Vec<usize> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, from as u8]);
        frame.resize(60, 0);
        let now = VirtualInstant(self.now);
        self.emulator.send(self.stations[from], frame.into(), now);
        self.wait(1)
    }

    fn set_up(&mut self, link: usize, is_up: bool) {
        self.emulator.set_up(self.links[link], is_up, VirtualInstant(self.now));
    }
}

const TREE: SwitchKind = SwitchKind::SpanningTree;

fn ring(count: usize) -> Ring {
    let joined: Vec<_> = (0..count).map(|at| (at, (at + 1) % count, "{delay: 1ms}")).collect();
    Ring::new(&vec![TREE; count], &joined)
}

#[test]
fn a_ring_carries_each_frame_once_from_the_start() {
    let mut ring = ring(5);
    for from in 0..5 {
        let others: Vec<usize> = (0..5).filter(|at| *at != from).collect();
        assert_eq!(ring.broadcast(from), others);
    }
    // It stays so.
    ring.wait(100);
    assert_eq!(ring.broadcast(2), [0, 1, 3, 4]);
}

#[test]
fn each_switch_with_each_other_is_a_tree_too() {
    let joined: Vec<(usize, usize, &str)> =
        (0..8).flat_map(|a| (0..a).map(move |b| (a, b, "{}"))).collect();
    let mut mesh = Ring::new(&[TREE; 8], &joined);
    for from in 0..8 {
        assert_eq!(mesh.broadcast(from).len(), 7);
    }
}

#[test]
fn another_way_is_found_after_a_cut_and_the_old_one_again() {
    let mut ring = ring(5);
    // From the root both ways, 2 and 3 are the furthest: the link between them is the blocked one.
    ring.set_up(0, false);
    assert_eq!(ring.broadcast(0), [3, 4], "1 is cut off, and 2 behind it");
    // The message age of 20 s runs out, then a port listens and learns for 15 s each.
    ring.wait(55);
    assert_eq!(ring.broadcast(0), [1, 2, 3, 4]);
    ring.set_up(0, true);
    ring.wait(55);
    for from in 0..5 {
        assert_eq!(ring.broadcast(from).len(), 4);
    }
}

#[test]
fn a_slow_link_is_the_one_that_waits() {
    let mut ring = Ring::new(
        &[TREE; 3],
        &[(0, 1, "{rate: 1mbit}"), (1, 2, "{rate: 1gbit}"), (2, 0, "{rate: 1gbit}")],
    );
    assert_eq!(ring.broadcast(0), [1, 2]);
    let sent = |ring: &Ring| ring.emulator.pipe(ring.links[0], Side::Second).counts().sent;
    let before = sent(&ring);
    assert_eq!(ring.broadcast(1), [0, 2]);
    // The port of 1 to the slow link is blocked.
    assert_eq!(sent(&ring), before);
}

#[test]
fn one_switch_with_a_tree_breaks_a_loop_of_others() {
    let (hub, plain) = (SwitchKind::Hub, SwitchKind::Learning);
    let joined = [(0, 1, "{}"), (1, 2, "{}"), (2, 0, "{}"), (1, 3, "{}"), (3, 0, "{}")];
    let mut ring = Ring::new(&[TREE, hub, plain, plain], &joined);
    for from in 0..4 {
        assert_eq!(ring.broadcast(from).len(), 3, "from {from}");
    }
    ring.wait(60);
    assert_eq!(ring.broadcast(1).len(), 3);
}

#[test]
fn two_links_between_two_switches_are_one_in_use() {
    let mut pair = Ring::new(&[TREE; 2], &[(0, 1, "{}"), (0, 1, "{}")]);
    assert_eq!(pair.broadcast(0), [1]);
    pair.set_up(0, false);
    pair.wait(55);
    assert_eq!(pair.broadcast(0), [1]);
}
