//! A wlan: a frame reaches all in range and nobody else, each by its own impairments.

use super::*;

fn impairments_of(text: &str) -> Impairments {
    serde_saphyr::from_str(text).unwrap()
}

/// Stations at these places on a line, members of one wlan whose frames have the impairments `radio`.
fn row(range: f64, places: &[f64], radio: &str) -> (Emulator, Vec<StationId>) {
    let mut emulator = Emulator::new(7);
    let wlan = emulator.add_switch(SwitchKind::Wlan { range });
    let (radio, none) = (impairments_of(radio), Impairments::default());
    let stations: Vec<StationId> = places
        .iter()
        .map(|x| {
            let station = emulator.add_station();
            let ends = [Attachment::Station(station), Attachment::Switch(wlan)];
            emulator.connect(ends, [&none, &radio]);
            emulator.set_position(station, Point { x: *x, y: 0.0 });
            station
        })
        .collect();
    emulator.start(VirtualInstant(0));
    (emulator, stations)
}

fn broadcast() -> Frame {
    let mut frame = vec![0; 100];
    frame[..6].fill(0xff);
    frame[11] = 1;
    frame.into()
}

/// Sends a frame at `now`. Returns who gets it, and how long after.
fn receivers(emulator: &mut Emulator, from: StationId, now: i64) -> Vec<(usize, i64)> {
    let mut found = Vec::new();
    let mut deliver =
        |station: StationId, due: VirtualInstant, _: Frame| found.push((station.0, due.0 - now));
    emulator.advance(VirtualInstant(now), &mut deliver);
    emulator.send(from, broadcast(), VirtualInstant(now));
    emulator.advance(VirtualInstant(now + 1_000_000_000), &mut deliver);
    found.sort_unstable();
    found
}

#[test]
fn a_frame_reaches_all_in_range_once_and_nobody_else() {
    let (mut emulator, at) = row(100.0, &[0.0, 100.0, 200.0, 200.5], "{delay: 5ms, rate: 1mbit}");
    // 800 bits at 1 Mbit/s, and the delay.
    const ONE_WAY: i64 = 800_000 + 5_000_000;
    let expected = [vec![1], vec![0, 2], vec![1, 3], vec![2]];
    for (from, heard) in expected.iter().enumerate() {
        let seen = receivers(&mut emulator, at[from], from as i64 * 2_000_000_000);
        assert_eq!(seen, heard.iter().map(|to| (*to, ONE_WAY)).collect::<Vec<_>>());
        for to in 0..at.len() {
            assert_eq!(emulator.is_in_range(at[from], at[to]), heard.contains(&to), "{from} {to}");
        }
    }
}

#[test]
fn a_station_that_moves_is_heard_where_it_is() {
    let (mut emulator, at) = row(100.0, &[0.0, 100.0, 200.0], "{delay: 5ms}");
    assert_eq!(receivers(&mut emulator, at[0], 0), [(1, 5_000_000)]);
    emulator.set_position(at[2], Point { x: 60.0, y: 80.0 });
    assert_eq!(receivers(&mut emulator, at[0], 2_000_000_000), [(1, 5_000_000), (2, 5_000_000)]);
    emulator.set_position(at[1], Point { x: 0.0, y: -100.1 });
    assert_eq!(receivers(&mut emulator, at[0], 4_000_000_000), [(2, 5_000_000)]);
}

/// A frame on its way arrives: its sender was in range when it sent.
#[test]
fn who_hears_a_frame_is_decided_when_it_is_sent() {
    let (mut emulator, at) = row(100.0, &[0.0, 100.0], "{delay: 5ms}");
    let mut found = Vec::new();
    let mut deliver = |station, due: VirtualInstant, _: Frame| found.push((station, due.0));
    emulator.send(at[0], broadcast(), VirtualInstant(0));
    emulator.advance(VirtualInstant(1_000_000), &mut deliver);
    emulator.set_position(at[1], Point { x: 500.0, y: 0.0 });
    emulator.advance(VirtualInstant(9_000_000), &mut deliver);
    assert_eq!(found, [(at[1], 5_000_000)]);
}

/// Each receiver draws its own losses, and the same ones in each run.
#[test]
fn receivers_lose_frames_by_themselves_and_repeatably() {
    let fates = || {
        let (mut emulator, at) = row(10.0, &[0.0, 1.0, 2.0], "{delay: 5ms, loss: 50%}");
        let fate = |number: i64| receivers(&mut emulator, at[0], number * 2_000_000_000);
        (0..200).map(fate).collect::<Vec<_>>()
    };
    let seen = fates();
    assert_eq!(seen, fates());
    for (heard, least) in [(0, 25), (1, 50), (2, 25)] {
        assert!(seen.iter().filter(|one| one.len() == heard).count() > least, "{heard}");
    }
}

/// In rounds the way into a wlan needs no delay: no frame arrives sooner than the radio's delay after it was sent.
#[test]
fn rounds_are_as_long_as_the_radios_delay() {
    let (emulator, _) = row(10.0, &[0.0, 1.0], "{delay: 5ms, jitter: 1ms}");
    assert_eq!(emulator.least_delay(), Span(4_000_000));
}
