//! The registry: a slot is claimed once, every search finds it, and its owner or a controller that finds it stale frees it.

#![cfg(not(loom))]

mod clock;

use lorentz_clock::{
    Armed, Deadline, Holder, PidNamespace, ProcessId, RealInstant, Registry, Setting, Span, Timer,
    TimerKind, VirtualInstant, Waiter, WallTime, MAX_PID_NAMESPACES, TIMERS, WAITERS,
};
use proptest::prelude::*;
use std::collections::HashSet;
use std::thread;

/// Address on the stack at which a thread waits.
const HERE: u64 = 0x7000_0000;

const KINDS: [TimerKind; 3] = [TimerKind::Posix, TimerKind::Interval, TimerKind::Fd];

fn registry() -> Box<Registry> {
    clock::blank_registry()
}

fn owners(registry: &Registry) -> HashSet<(ProcessId, u32)> {
    let owners: Vec<_> = registry.waiters().filter_map(Waiter::owner).collect();
    let distinct: HashSet<_> = owners.iter().copied().collect();
    assert_eq!(distinct.len(), owners.len());
    distinct
}

/// Returns a process in the namespace of the first monitor.
fn process(number: u32) -> ProcessId {
    ProcessId::new(PidNamespace::MONITOR, number)
}

fn same<T>(a: &T, b: &T) -> bool {
    std::ptr::eq(a, b)
}

#[test]
fn an_empty_registry_has_nobody() {
    let registry = registry();
    assert_eq!(registry.waiters().count(), 0);
    assert_eq!(registry.timers().count(), 0);
    assert!(registry.find_timer(process(1), TimerKind::Fd, 3).is_none());
}

#[test]
fn a_wait_says_what_it_waits_for() {
    let registry = registry();
    let waiter = registry.claim_waiter(process(7), 8, HERE).unwrap();
    assert_eq!(waiter.owner(), Some((process(7), 8)));
    for deadline in [
        Deadline::Never,
        Deadline::Virtual(VirtualInstant(-5)),
        Deadline::Wall(WallTime { secs: -20_000_000_000, nanos: 999_999_999 }),
        Deadline::Virtual(VirtualInstant(i64::MAX)),
        Deadline::Boot(VirtualInstant(5_000_000_000)),
        Deadline::Wall(WallTime { secs: i64::MAX, nanos: 0 }),
        Deadline::Never,
    ] {
        waiter.publish(deadline, 232, 44, Span(9));
        assert_eq!((waiter.deadline(), waiter.call(), waiter.observed_seq()), (deadline, 232, 44));
        let found = registry.waiters().next().unwrap();
        assert!(same(found, waiter));
    }
    waiter.release();
    assert_eq!(waiter.owner(), None);
    assert_eq!(registry.waiters().count(), 0);
}

/// A signal handler waits, deeper in the stack than the wait it interrupted.
#[test]
fn a_thread_may_wait_twice() {
    let registry = registry();
    let outer = registry.claim_waiter(process(7), 8, HERE).unwrap();
    let in_handler = registry.claim_waiter(process(7), 8, HERE - 1_000).unwrap();
    assert!(!same(outer, in_handler));
    in_handler.release();
    assert_eq!(outer.owner(), Some((process(7), 8)));
}

/// A handler on a higher stack takes the slot of the wait that it interrupted. The wait then sees that the slot is not its own.
#[test]
fn a_wait_tells_its_slot_from_anothers() {
    let registry = registry();
    let outer = registry.claim_waiter(process(7), 8, HERE).unwrap();
    assert!(outer.is_of((process(7), 8), HERE));
    let in_handler = registry.claim_waiter(process(7), 8, HERE + 1_000).unwrap();
    assert!(same(outer, in_handler) && !outer.is_of((process(7), 8), HERE));
    in_handler.release();
    assert!(!outer.is_of((process(7), 8), HERE + 1_000));
}

/// The thread has jumped out of its first wait, so its next wait is not deeper in the stack.
#[test]
fn a_wait_that_was_jumped_out_of_leaves_no_slot() {
    let registry = registry();
    let left = registry.claim_waiter(process(7), 8, HERE).unwrap();
    for depth in [HERE, HERE + 1_000] {
        assert!(same(registry.claim_waiter(process(7), 8, depth).unwrap(), left));
    }
    // Another thread's slot is never taken, whatever the depth.
    assert!(!same(registry.claim_waiter(process(6), 8, u64::MAX).unwrap(), left));
    assert_eq!(registry.waiters().count(), 2);
}

/// The thread that had the slot is gone, and another thread has claimed the slot.
#[test]
fn only_the_owners_slot_is_taken_away() {
    let registry = registry();
    let waiter = registry.claim_waiter(process(7), 8, HERE).unwrap();
    for (other, thread) in [(7, 9), (8, 8), (8, 7), (0, 8), (7, 0), (0, 0)] {
        waiter.release_if((process(other), thread));
        assert_eq!(waiter.owner(), Some((process(7), 8)));
    }
    waiter.release_if((process(7), 8));
    assert_eq!(waiter.owner(), None);
    let next = registry.claim_waiter(process(9), 8, HERE).unwrap();
    assert!(same(next, waiter));
    waiter.release_if((process(7), 8));
    assert_eq!(next.owner(), Some((process(9), 8)));
}

#[test]
fn one_thread_cannot_fill_the_table() {
    let registry = registry();
    let mut slots = Vec::new();
    while let Some(slot) = registry.claim_waiter(process(1), 100, HERE - slots.len() as u64) {
        slots.push(slot);
        assert!(slots.len() < 1_000, "where does it end?");
    }
    assert_eq!(registry.waiters().count(), slots.len());
    assert!(slots.len() >= 16, "{} places are few", slots.len());
    for thread in 1..WAITERS as u32 / 2 {
        let found = registry.claim_waiter(process(1), thread, 0).is_some();
        assert_eq!(found, thread != 100, "thread {thread}");
    }
    let freed = slots[slots.len() / 2];
    freed.release();
    assert!(same(registry.claim_waiter(process(1), 100, 1).unwrap(), freed));
    assert!(registry.claim_waiter(process(1), 100, 0).is_none());
}

/// A server has a timer for each connection, and starts processes.
#[test]
fn a_process_with_many_timers_leaves_room_for_the_others() {
    let registry = registry();
    for fd in 3..1_000 {
        assert!(
            registry.claim_timer(process(4_000), TimerKind::Fd, fd).is_some(),
            "descriptor {fd}"
        );
    }
    for child in 3_000..5_000 {
        assert!(
            registry.claim_timer(process(child), TimerKind::Interval, 0).is_some(),
            "process {child}"
        );
    }
}

#[test]
fn a_full_table_has_no_place_but_finds_what_it_has() {
    let registry = registry();
    let (mut claimed, mut refused) = (Vec::new(), 0);
    for id in 0..2 * TIMERS as u32 {
        match registry.claim_timer(process(1), TimerKind::Posix, id) {
            Some(_) => claimed.push(id),
            None => refused += 1,
        }
    }
    assert_eq!(registry.timers().count(), claimed.len());
    assert!(claimed.len() > TIMERS * 9 / 10 && claimed.len() <= TIMERS && refused > 0);
    for id in claimed {
        let owner = registry.find_timer(process(1), TimerKind::Posix, id).unwrap().owner();
        assert_eq!(owner, Some((process(1), TimerKind::Posix, id)));
    }
}

#[test]
fn many_threads_of_many_processes_find_places() {
    let registry = registry();
    let half = WAITERS as u32 / 2;
    for thread in 1..=half {
        assert!(
            registry.claim_waiter(process(1 + thread / 50), 300 + thread, HERE).is_some(),
            "{thread}"
        );
    }
    assert_eq!(owners(&registry).len(), half as usize);
}

#[test]
fn a_timer_is_found_by_what_it_is() {
    let registry = registry();
    let timers: Vec<_> = [1, 2, 70_000]
        .iter()
        .flat_map(|number| KINDS.map(|kind| (process(*number), kind)))
        .flat_map(|(process, kind)| [0, 1, 0x0fff_ffff].map(|id| (process, kind, id)))
        .collect();
    for &(process, kind, id) in &timers {
        assert!(registry.find_timer(process, kind, id).is_none());
        let claimed = registry.claim_timer(process, kind, id).unwrap();
        assert_eq!(claimed.owner(), Some((process, kind, id)));
        assert!(same(registry.find_timer(process, kind, id).unwrap(), claimed));
        assert!(same(registry.claim_timer(process, kind, id).unwrap(), claimed));
    }
    assert_eq!(registry.timers().count(), timers.len());
    for &(process, kind, id) in &timers {
        registry.find_timer(process, kind, id).unwrap().release();
        assert!(registry.find_timer(process, kind, id).is_none());
    }
    assert_eq!(registry.timers().count(), 0);
}

/// A slot before the timer's own in the neighbourhood has been freed. The timer must not get a second slot.
#[test]
fn a_timer_that_stands_behind_a_gap_is_still_found() {
    let registry = registry();
    let ids = 0..TIMERS as u32;
    let timers: Vec<_> =
        ids.filter_map(|id| registry.claim_timer(process(1), TimerKind::Fd, id)).collect();
    let owners: Vec<_> = timers.iter().map(|timer| timer.owner().unwrap()).collect();
    timers.iter().step_by(2).for_each(|timer| timer.release());
    for (timer, (process, kind, id)) in timers.iter().zip(owners).skip(1).step_by(2) {
        assert!(same(registry.claim_timer(process, kind, id).unwrap(), timer));
    }
}

#[test]
fn a_timer_keeps_its_settings() {
    let registry = registry();
    let timer: &Timer = registry.claim_timer(process(1), TimerKind::Fd, 3).unwrap();
    let setting =
        Setting { deadline: Deadline::Wall(WallTime { secs: 5, nanos: 6 }), interval: Span(7) };
    timer.set(setting, 8);
    assert_eq!((timer.setting(), timer.observed_seq()), (setting, 8));
    timer.set_observed_seq(10);
    assert_eq!((timer.setting(), timer.observed_seq()), (setting, 10));
    let armed = Armed {
        at: RealInstant::NEVER,
        interval: Span(9),
        wall: WallTime { secs: -1, nanos: 999_999_999 },
        leapt: Span(12),
    };
    timer.set_armed(armed);
    assert_eq!(timer.armed(), armed);
    timer.set_clock(11 | Timer::CANCEL_ON_SET | Timer::CANCELLED);
    assert_eq!(timer.clock(), 11 | Timer::CANCEL_ON_SET | Timer::CANCELLED);
}

/// One thread at a time has the right to set a timer. A thread of a past epoch never keeps it.
#[test]
fn the_right_to_set_a_timer_is_not_held_by_the_dead() {
    let registry = registry();
    let timer = registry.claim_timer(process(1), TimerKind::Fd, 3).unwrap();
    let [before, now] = [registry.new_epoch(), registry.new_epoch()];
    assert_ne!(before, now);
    let thread = |epoch, thread| Holder { epoch, thread };
    assert_eq!(timer.begin_setting(thread(before, 7)), Ok(()));
    assert_eq!(timer.begin_setting(thread(before, 8)), Err(thread(before, 7)), "two at once");
    // The process has executed another program. A thread of the new program sets the timer; it may have the same number.
    assert_eq!(timer.begin_setting(thread(now, 7)), Ok(()));
    assert_eq!(timer.begin_setting(thread(now, 8)), Err(thread(now, 7)));
    timer.end_setting();
    assert_eq!(timer.begin_setting(thread(now, 8)), Ok(()));
}

/// Programs name descriptors that cannot be, -1 among them.
#[test]
fn the_right_to_a_timer_of_any_id_is_given() {
    let registry = registry();
    let holder = Holder { epoch: registry.new_epoch(), thread: 7 };
    for id in [0, 0x0fff_ffff, 0x7fff_ffff, u32::MAX] {
        let owner = (process(1), TimerKind::Fd, id);
        let timer = registry.claim_timer(process(1), TimerKind::Fd, id).expect("there is room");
        assert_eq!(timer.begin_setting_of(owner, holder), Ok(true), "{id}");
        timer.end_setting();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    /// After claims and releases in any order, a walk through the table finds exactly the slots that are claimed.
    #[test]
    fn everybody_is_found(moves in prop::collection::vec((any::<bool>(), 1..40_u32, 1..2_000_u32), 1..500)) {
        let registry = registry();
        let mut waits = HashSet::new();
        let mut timers = Vec::new();
        for (comes, number, id) in moves {
            let process = process(number);
            let kind = KINDS[id as usize % 3];
            if comes {
                if waits.insert((process, id)) {
                    prop_assert!(registry.claim_waiter(process, id, HERE).is_some());
                }
                if !timers.contains(&(process, kind, id)) {
                    timers.push((process, kind, id));
                }
                prop_assert!(registry.claim_timer(process, kind, id).is_some());
            } else {
                // Release some that exist: random owners hardly ever do.
                if let Some(gone) = waits.iter().next().copied() {
                    waits.remove(&gone);
                    registry.waiters().for_each(|waiter| waiter.release_if(gone));
                }
                if let Some((process, kind, id)) = timers.pop() {
                    registry.find_timer(process, kind, id).expect("it was claimed").release();
                }
            }
        }
        prop_assert_eq!(owners(&registry), waits);
        let found: Vec<_> = registry.timers().filter_map(Timer::owner).collect();
        prop_assert_eq!(found.len(), timers.len());
        prop_assert!(found.iter().all(|owner| timers.contains(owner)));
    }
}

/// In every process id namespace the first process has the number one.
#[test]
fn processes_of_one_number_in_two_namespaces_are_two() {
    let registry = registry();
    let spaces = [4_026_531_836, 4_026_532_290]
        .map(|inode| registry.pid_namespaces.find_or_add(inode).unwrap());
    let inits = spaces.map(|space| ProcessId::new(space, 1));
    let waits = inits.map(|init| registry.claim_waiter(init, 1, HERE).unwrap());
    let timers = inits.map(|init| registry.claim_timer(init, TimerKind::Interval, 0).unwrap());
    assert!(!same(waits[0], waits[1]) && !same(timers[0], timers[1]));
    for (place, init) in inits.into_iter().enumerate() {
        assert_eq!((init.namespace(), init.number()), (spaces[place], 1));
        assert_eq!(waits[place].owner(), Some((init, 1)));
        assert_eq!(timers[place].owner(), Some((init, TimerKind::Interval, 0)));
    }
}

#[test]
fn a_namespace_keeps_its_space() {
    let registry = registry();
    assert_eq!(registry.pid_namespaces.inode(PidNamespace::MONITOR), None);
    let inodes = 1..=MAX_PID_NAMESPACES as u32;
    let spaces: Vec<_> =
        inodes.clone().map(|inode| registry.pid_namespaces.find_or_add(inode).unwrap()).collect();
    for (inode, space) in inodes.zip(&spaces) {
        assert_eq!(registry.pid_namespaces.find_or_add(inode), Some(*space));
        assert_eq!(registry.pid_namespaces.inode(*space), Some(inode));
        assert_eq!(PidNamespace::from_bits(space.bits()), *space);
        let last = ProcessId::new(*space, (1 << 22) - 1);
        assert_eq!((last.namespace(), last.number()), (*space, (1 << 22) - 1));
    }
    assert_eq!(
        registry.pid_namespaces.find_or_add(MAX_PID_NAMESPACES as u32 + 1),
        None,
        "there is no place left"
    );
}

const THREADS: u32 = 8;

/// All keys fall into the same neighbourhood, again and again. Two threads never have one slot at once.
#[test]
fn threads_never_share_a_slot() {
    let registry = registry();
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let (registry, process) = (&registry, process(number));
            scope.spawn(move || {
                for round in 0..5_000 {
                    let own =
                        registry.claim_waiter(process, 100, HERE).expect("there is room for all");
                    own.publish(
                        Deadline::Virtual(VirtualInstant(round)),
                        number,
                        round as u32,
                        Span::ZERO,
                    );
                    assert_eq!(own.owner(), Some((process, 100)));
                    assert_eq!((own.call(), own.observed_seq()), (number, round as u32));
                    assert_eq!(own.deadline(), Deadline::Virtual(VirtualInstant(round)));
                    own.release();
                }
            });
        }
    });
    assert_eq!(registry.waiters().count(), 0);
}

/// Claims that are not released are all found in the end, each in its own slot.
#[test]
fn threads_that_claim_at_once_all_get_places() {
    const EACH: u32 = 500;
    let registry = registry();
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let (registry, process) = (&registry, process(number));
            scope.spawn(move || {
                for id in 0..EACH {
                    registry.claim_waiter(process, id, HERE).expect("there is room for all");
                    registry
                        .claim_timer(process, TimerKind::Fd, id)
                        .expect("there is room for all");
                    // Meanwhile no walk sees a slot twice.
                    if id % 100 == 0 {
                        owners(registry);
                    }
                }
            });
        }
    });
    let expected: HashSet<_> =
        (1..=THREADS).flat_map(|number| (0..EACH).map(move |id| (process(number), id))).collect();
    assert_eq!(owners(&registry), expected);
    assert_eq!(registry.timers().count(), expected.len());
}

#[test]
fn relocated_timers_keep_everything_but_their_namespace() {
    let registry = registry();
    let [from, to] = [PidNamespace::MONITOR, PidNamespace::from_bits(3)];
    let setting =
        Setting { deadline: Deadline::Virtual(VirtualInstant(7_000_000_000)), interval: Span(11) };
    let armed = Armed {
        at: RealInstant(5),
        interval: Span(6),
        wall: WallTime { secs: 8, nanos: 9 },
        leapt: Span(10),
    };
    let claim = |namespace, number| {
        registry.claim_timer(ProcessId::new(namespace, number), TimerKind::Fd, number).unwrap()
    };
    for number in 1..200 {
        let timer = claim(from, number);
        timer.set(setting, 12);
        timer.set_armed(armed);
        timer.set_clock(Timer::CANCEL_ON_SET);
        timer.set_signal(14);
        timer.set_target(15);
        timer.set_signalled_again(16);
    }
    let elsewhere = PidNamespace::from_bits(2);
    claim(elsewhere, 1);
    for namespace in [from, elsewhere] {
        registry.claim_waiter(ProcessId::new(namespace, 1), 1, HERE).unwrap();
    }
    assert!(registry.relocate(from, to));
    assert_eq!(registry.timers().count(), 200);
    let waits = [to, elsewhere].map(|namespace| (ProcessId::new(namespace, 1), 1));
    assert_eq!(owners(&registry), HashSet::from(waits));
    // The thread takes its slot again.
    registry.claim_waiter(waits[0].0, 1, HERE).unwrap();
    assert_eq!(registry.waiters().count(), 2);
    for number in 1..200 {
        let id = ProcessId::new(to, number);
        let timer = registry.find_timer(id, TimerKind::Fd, number).unwrap();
        assert_eq!((timer.setting(), timer.armed()), (setting, armed));
        let words = (timer.observed_seq(), timer.clock(), timer.signal(), timer.target());
        assert_eq!(words, (12, Timer::CANCEL_ON_SET, 14, 15));
        assert_eq!(timer.signalled_again(), 16);
    }
}
