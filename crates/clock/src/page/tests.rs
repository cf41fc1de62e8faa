use super::*;
use std::array;

fn zeroed() -> ClockPage {
    // SAFETY: a page is nothing but atomics.
    unsafe { core::mem::zeroed() }
}

fn segment(number: i64) -> Segment {
    Segment {
        real: RealInstant(number * 1_000),
        virt: VirtualInstant(number * 1_500),
        pace: if number % 3 == 0 { Pace::Frozen } else { Pace::Running(Rate::ONE) },
        wall: WallTime { secs: number * 100, nanos: number as u32 },
        boot: Span(number),
    }
}

fn clock() -> ClockPage {
    let page = zeroed();
    page.initialise(&segment(1), Rate::ONE, Policy::default(), WallTime::default());
    page
}

/// All that a reader can get to know.
fn all_of(page: &ClockPage) -> impl PartialEq + core::fmt::Debug {
    let look = page.snapshot(|| RealInstant(1 << 40), |_| panic!("the clock is being changed"));
    let ahead = [false, true].map(|wall| page.ahead(wall).map(|(_, secs, nanos)| (secs, nanos)));
    let wall = [0, 5_500, 1 << 40].map(|real| page.wall_of(RealInstant(real)));
    let history: std::vec::Vec<_> = page.history().collect();
    ((look.segment, look.limit, page.rate(), page.began()), ahead, wall, history)
}

fn rubbish(number: i64) -> Terms {
    let mut segment = segment(-77 - number);
    segment.pace = Pace::Running(Rate::ONE);
    Terms { segment, limit: VirtualInstant(5), rate: Rate::ONE }
}

/// However much of it the dead writer has written: until the count of changes says so, nothing of it counts.
#[test]
fn a_writer_may_die_after_any_store() {
    let page = clock();
    for number in 2..3 * HISTORY as i64 {
        let before = all_of(&page);
        let stores: [&dyn Fn(); 3] = [
            &|| page.entry(page.changes.load(Ordering::Relaxed) + 1).store(&rubbish(number)),
            &|| page.current.store(&rubbish(number)),
            &|| page.set(&rubbish(number)),
        ];
        for done in 0..=stores.len() {
            core::mem::forget(page.change());
            stores[..done].iter().for_each(|store| store());
            assert_eq!(page.ahead(false), None);
            drop(page.change());
            assert_eq!(all_of(&page), before);
        }
        let change = page.change();
        change.set_limit(VirtualInstant(number << 40));
        change.publish(&segment(number));
        assert_eq!(page.history().last(), Some(segment(number)));
    }
}

/// From then on all of it does.
#[test]
fn a_writer_that_dies_after_the_count_has_changed_the_clock() {
    let (page, whole) = (clock(), clock());
    for number in 2..3 * HISTORY as i64 {
        let change = whole.change();
        change.set_limit(VirtualInstant(number << 40));
        change.publish(&segment(number));
        let dying = page.change();
        let terms = Terms::new(&segment(number), VirtualInstant(number << 40), Rate::ONE);
        let next = page.changes.load(Ordering::Relaxed) + 1;
        page.entry(next).store(&terms);
        page.changes.store(next, Ordering::Release);
        core::mem::forget(dying);
        drop(page.change());
        assert_eq!(all_of(&page), all_of(&whole));
    }
}

#[test]
fn the_sequence_wraps() {
    let page = clock();
    page.sequence.store(u32::MAX - 5, Ordering::Relaxed);
    let sequences = array::from_fn(|_| {
        drop(page.change());
        page.sequence()
    });
    assert_eq!(sequences, [u32::MAX - 3, u32::MAX - 1, 0, 2]);
}

/// What a reader needs of a clock that runs as the host's is one cache line, of another clock two.
#[test]
fn readers_touch_few_cache_lines() {
    use core::mem::{offset_of, size_of};
    assert_eq!(ClockPage::SEQUENCE_OFFSET % 64, 0);
    assert_eq!(offset_of!(ClockPage, short) + size_of::<Short>(), ClockPage::SEQUENCE_OFFSET + 64);
    assert_eq!(offset_of!(ClockPage, current), ClockPage::SEQUENCE_OFFSET + 64);
    assert_eq!(size_of::<SharedTerms>(), 64);
}

#[test]
fn changes_have_their_places() {
    let places: [usize; HISTORY + 2] = array::from_fn(|change| place(change as u64));
    let expected: [usize; HISTORY + 2] =
        array::from_fn(|change| if change < HISTORY { change } else { change - HISTORY + 1 });
    assert_eq!(places, expected);
}
