//! Properties of any frames through any link.

use super::*;
use lorentz_clock::Span;
use proptest::prelude::*;

fn impairments_of(text: &str) -> Impairments {
    serde_saphyr::from_str(text).unwrap()
}

/// Two stations and a link between them.
fn pair(seed: u64, impairments: &Impairments) -> (Emulator, [StationId; 2], LinkId) {
    let mut emulator = Emulator::new(seed);
    let stations = [emulator.add_station(), emulator.add_station()];
    let link = emulator.connect(stations.map(Attachment::Station), [impairments; 2]);
    (emulator, stations, link)
}

/// A frame that carries its number.
fn numbered(number: u32, size: usize) -> Frame {
    let mut frame = vec![0; size.max(14)];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame.into()
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame[..4].try_into().unwrap())
}

/// Sends frames at their instants from the first station. Returns the arrivals at the second one, each as (due, number).
fn through(
    emulator: &mut Emulator,
    from: StationId,
    sends: &[(i64, usize)],
) -> Vec<(VirtualInstant, u32)> {
    let mut arrived = Vec::new();
    let mut deliver = |_, due, frame: Frame| arrived.push((due, number(&frame)));
    for (at, &(instant, size)) in sends.iter().enumerate() {
        let now = VirtualInstant(instant);
        emulator.advance(now, &mut deliver);
        emulator.send(from, numbered(at as u32, size), now);
    }
    emulator.advance(VirtualInstant::NEVER, &mut deliver);
    arrived
}

/// As [`through`], in rounds, the way the emulator's process does it.
fn in_rounds(
    emulator: &mut Emulator,
    from: StationId,
    sends: &[(i64, usize)],
) -> Vec<(VirtualInstant, u32)> {
    let mut arrived = Vec::new();
    let mut left = sends.iter().enumerate().peekable();
    let mut now = VirtualInstant(0);
    while left.peek().is_some() || emulator.next_due().is_some() {
        let longest = now.plus(emulator.least_delay());
        let end = emulator.next_delivery().map_or(longest, |due| due.min(longest));
        let mut deliver = |_, due, frame: Frame| {
            assert_eq!(due, end);
            arrived.push((due, number(&frame)));
        };
        while let Some((at, &(sent, size))) = left.next_if(|(_, sent)| sent.0 <= end.0) {
            emulator.advance(VirtualInstant(sent), &mut deliver);
            emulator.send(from, numbered(at as u32, size), VirtualInstant(sent));
        }
        emulator.advance(end, &mut deliver);
        now = end;
    }
    arrived
}

fn is_whole(pipe: &Pipe) -> bool {
    let counts = pipe.counts();
    counts.sent + counts.duplicated
        == counts.delivered + counts.lost + counts.dropped + counts.cut + pipe.in_flight()
}

prop_compose! {
    fn impairments()(
        rate in prop_oneof![Just("none"), Just("1mbit"), Just("9.7mbit"), Just("1gbit")],
        delay in prop_oneof![Just("0"), Just("1ms"), Just("37us")],
        jitter in prop_oneof![Just("0"), Just("500us"),
            Just("{spread: 3ms, distribution: pareto, correlation: 40%}")],
        loss in prop_oneof![Just("0%"), Just("10%"), Just("{enter: 5%, leave: 30%}")],
        duplicate in prop_oneof![Just("0%"), Just("5%")],
        queue in prop_oneof![Just("{packets: 5}"), Just("{bytes: 20kb, discipline: red}"),
            Just("{packets: 50, discipline: codel, codel-target: 1ms, codel-interval: 20ms}")],
    ) -> Impairments {
        impairments_of(&format!("{{rate: {rate}, delay: {delay}, jitter: {jitter}, loss: {loss}, \
                         duplicate: {duplicate}, queue: {queue}}}"))
    }
}

fn sends() -> impl Strategy<Value = Vec<(i64, usize)>> {
    let gaps = prop::collection::vec((0_i64..400_000, 60_usize..1_514), 1..300);
    gaps.prop_map(|gaps| {
        let mut now = 0;
        gaps.into_iter().map(|(gap, size)| ((now += gap, now).1, size)).collect()
    })
}

proptest! {
    #[test]
    fn nothing_is_early_out_of_order_or_unaccounted_for(
        seed in any::<u64>(), impairments in impairments(), sends in sends(), cut in any::<bool>(),
    ) {
        let (mut emulator, stations, link) = pair(seed, &impairments);
        if cut {
            // A cut comes after half of the frames, and drops those that are on their way.
            let half = sends.len() / 2;
            through_until(&mut emulator, stations[0], &sends[..half]);
            emulator.set_up(link, false, VirtualInstant(0));
            prop_assert!(is_whole(emulator.pipe(link, Side::First)));
            prop_assert_eq!(emulator.pipe(link, Side::First).in_flight(), 0);
            emulator.set_up(link, true, VirtualInstant(0));
            through(&mut emulator, stations[0], &sends[half..]);
        } else {
            let arrived = through(&mut emulator, stations[0], &sends);
            check_arrivals(&arrived, &sends, &impairments)?;
        }
        let pipe = emulator.pipe(link, Side::First);
        prop_assert!(is_whole(pipe), "{:?}", pipe.counts());
        prop_assert_eq!(pipe.in_flight(), 0);
        prop_assert_eq!(pipe.counts().sent, sends.len() as u64);
    }

    /// Every frame arrives at the end of a round, and the arrivals are the same as without rounds.
    #[test]
    fn rounds_change_nothing(seed in any::<u64>(), impairments in impairments(), sends in sends()) {
        prop_assume!(impairments.least_delay() > Span::ZERO);
        let (mut emulator, stations, _) = pair(seed, &impairments);
        let at_once = through(&mut emulator, stations[0], &sends);
        let (mut emulator, stations, _) = pair(seed, &impairments);
        prop_assert_eq!(in_rounds(&mut emulator, stations[0], &sends), at_once);
    }

    #[test]
    fn the_same_seed_is_the_same_fate(seed in any::<u64>(), impairments in impairments(), sends in sends()) {
        let fate = || {
            let (mut emulator, stations, _) = pair(seed, &impairments);
            through(&mut emulator, stations[0], &sends)
        };
        prop_assert_eq!(fate(), fate());
    }

    /// Any number of frames back to back takes the sum of their bits divided by the rate, to the nanosecond.
    #[test]
    fn the_rate_is_exact(bits in 8_000_u64..10_000_000_000, sizes in prop::collection::vec(14_usize..1_514, 1..400)) {
        let (mut emulator, stations, _) = pair(1, &impairments_of(&format!("{{rate: {bits}bit}}")));
        let sends: Vec<(i64, usize)> = sizes.iter().map(|&size| (0, size)).collect();
        let arrived = through(&mut emulator, stations[0], &sends);
        prop_assert_eq!(arrived.len(), sizes.len());
        let mut sum = 0_u128;
        for ((due, _), size) in arrived.iter().zip(&sizes) {
            sum += *size as u128 * 8 * 1_000_000_000;
            prop_assert_eq!(due.0 as u128, sum / u128::from(bits));
        }
    }
}

/// As [`through`], but frames that are on their way at the end stay there.
fn through_until(emulator: &mut Emulator, from: StationId, sends: &[(i64, usize)]) {
    for &(instant, size) in sends {
        emulator.advance(VirtualInstant(instant), &mut |_, _, _| ());
        emulator.send(from, numbered(0, size), VirtualInstant(instant));
    }
}

fn check_arrivals(
    arrived: &[(VirtualInstant, u32)],
    sends: &[(i64, usize)],
    impairments: &Impairments,
) -> Result<(), TestCaseError> {
    let delay = impairments.delay.unwrap_or_default().span();
    let steady = impairments.jitter().spread.span() == Span::ZERO;
    for pair in arrived.windows(2) {
        prop_assert!(pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1, "{:?}", pair);
    }
    for &(due, number) in arrived {
        let (instant, size) = sends[number as usize];
        let bits = size as u128 * 8 * 1_000_000_000;
        let rate = impairments.rate.unwrap_or_default().limit();
        let wire = rate.map_or(0, |rate| (bits / u128::from(rate)) as i64);
        let least = instant + wire + if steady { delay.0 } else { 0 };
        prop_assert!(due.0 >= least, "{} arrived {} early", number, least - due.0);
    }
    Ok(())
}

/// Makes `count` frames, 100 us apart.
fn steadily(count: usize) -> Vec<(i64, usize)> {
    (0..count).map(|at| (at as i64 * 100_000, 100)).collect()
}

#[test]
fn a_frame_takes_serialisation_then_delay() {
    let (mut emulator, stations, _) = pair(0, &impairments_of("{rate: 10mbit, delay: 5ms}"));
    let arrived =
        through(&mut emulator, stations[0], &[(1_000, 1_250), (1_000, 1_250), (9_000_000, 125)]);
    let dues: Vec<i64> = arrived.iter().map(|(due, _)| due.0).collect();
    assert_eq!(dues, [6_001_000, 7_001_000, 14_100_000]);
}

#[test]
fn reordering_happens_where_it_is_asked() {
    let (mut emulator, stations, link) = pair(9, &impairments_of("{delay: 1ms, reorder: 10%}"));
    let arrived = through(&mut emulator, stations[0], &steadily(20_000));
    let overtook = emulator.pipe(link, Side::First).counts().reordered;
    assert!((1_800..2_200).contains(&overtook), "{overtook}");
    let inversions = arrived.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    assert!(inversions > 1_500, "{inversions}");
}

#[test]
fn loss_duplicates_and_flipped_bits_are_as_many_as_asked() {
    const MANY: usize = 50_000;
    let text = "{loss: 2%, duplicate: 4%, corrupt: 6%}";
    let (mut emulator, stations, link) = pair(11, &impairments_of(text));
    let arrived = through(&mut emulator, stations[0], &steadily(MANY)).len();
    let counts = emulator.pipe(link, Side::First).counts();
    assert!((850..1_150).contains(&counts.lost), "{counts:?}");
    assert!((1_750..2_170).contains(&counts.duplicated), "{counts:?}");
    assert!((2_650..3_230).contains(&counts.corrupted), "{counts:?}");
    assert_eq!(arrived as u64, MANY as u64 - counts.lost + counts.duplicated);
}

#[test]
fn a_flipped_bit_is_one() {
    let (mut emulator, stations, _) = pair(2, &impairments_of("{corrupt: 100%}"));
    emulator.send(stations[0], vec![0; 64].into(), VirtualInstant(0));
    let mut ones = 0;
    emulator.advance(VirtualInstant(0), &mut |_, _, frame: Frame| {
        ones = frame.iter().map(|byte| byte.count_ones()).sum();
    });
    assert_eq!(ones, 1);
}

#[test]
fn directions_are_independent_and_change_while_frames_are_on_their_way() {
    let (mut emulator, stations, link) = pair(2, &impairments_of("{delay: 10ms}"));
    emulator.set(link, Side::Second, &impairments_of("{delay: 1ms}"));
    let mut arrived = Vec::new();
    let mut deliver = |station: StationId, due: VirtualInstant, _| arrived.push((station, due.0));
    emulator.send(stations[0], numbered(0, 60), VirtualInstant(0));
    emulator.send(stations[1], numbered(1, 60), VirtualInstant(0));
    emulator.advance(VirtualInstant(2_000_000), &mut deliver);
    // The delay is shorter from here on. The next frame does not overtake.
    emulator.set(link, Side::First, &impairments_of("{delay: 1ms}"));
    emulator.send(stations[0], numbered(2, 60), VirtualInstant(2_000_000));
    emulator.advance(VirtualInstant(20_000_000), &mut deliver);
    let first = stations[1];
    assert_eq!(arrived, [(stations[0], 1_000_000), (first, 10_000_000), (first, 10_000_000)]);
}

#[test]
fn a_link_that_is_down_carries_nothing() {
    let (mut emulator, stations, link) = pair(2, &impairments_of("{rate: 1mbit, delay: 1ms}"));
    emulator.set_up(link, false, VirtualInstant(0));
    emulator.send(stations[0], numbered(0, 60), VirtualInstant(0));
    assert_eq!(emulator.next_due(), None);
    assert_eq!(emulator.pipe(link, Side::First).counts().cut, 1);
}

#[test]
fn a_slower_link_holds_more_at_once_and_a_change_empties_it() {
    let (mut emulator, stations, link) = pair(2, &impairments_of("{rate: 1mbit}"));
    let sends: Vec<(i64, usize)> = (0..100).map(|_| (0, 1_250)).collect();
    through_until(&mut emulator, stations[0], &sends);
    emulator.set(link, Side::First, &impairments_of("{rate: 1gbit}"));
    let mut last = 0;
    emulator.advance(VirtualInstant::NEVER, &mut |_, due: VirtualInstant, _| last = due.0);
    // The frame on the wire takes the old rate, the other 99 the new one.
    assert_eq!(last, 10_000_000 + 99 * 10_000);
}

#[test]
fn a_switch_of_three_is_a_network() {
    let mut emulator = Emulator::new(0);
    let stations: Vec<StationId> = (0..3).map(|_| emulator.add_station()).collect();
    let switch = emulator.add_switch(SwitchKind::Learning);
    let impairments = impairments_of("{delay: 1ms}");
    for &station in &stations {
        emulator
            .connect([Attachment::Station(station), Attachment::Switch(switch)], [&impairments; 2]);
    }
    let address = |number: u8| [2, 0, 0, 0, 0, number];
    let frame = |to: [u8; 6], from: u8| -> Frame { [to, address(from), [0; 6]].concat().into() };
    let mut arrived = Vec::new();
    let mut deliver = |station: StationId, due: VirtualInstant, _| arrived.push((station.0, due.0));
    emulator.send(stations[0], frame([0xff; 6], 0), VirtualInstant(0));
    emulator.advance(VirtualInstant(5_000_000), &mut deliver);
    emulator.send(stations[1], frame(address(0), 1), VirtualInstant(5_000_000));
    emulator.advance(VirtualInstant(9_000_000), &mut deliver);
    assert_eq!(arrived, [(1, 2_000_000), (2, 2_000_000), (0, 7_000_000)]);
}

#[test]
fn after_a_cut_nothing_has_to_wait_for_what_was_lost() {
    let (mut emulator, stations, link) = pair(2, &impairments_of("{delay: 30s}"));
    emulator.send(stations[0], numbered(0, 60), VirtualInstant(0));
    emulator.advance(VirtualInstant(0), &mut |_, _, _| ());
    emulator.set_up(link, false, VirtualInstant(0));
    emulator.set(link, Side::First, &impairments_of("{delay: 1ms}"));
    emulator.set_up(link, true, VirtualInstant(0));
    emulator.send(stations[0], numbered(1, 60), VirtualInstant(5));
    let mut arrived = Vec::new();
    emulator.advance(VirtualInstant::NEVER, &mut |_, due: VirtualInstant, _| arrived.push(due.0));
    assert_eq!(arrived, [1_000_005]);
}
