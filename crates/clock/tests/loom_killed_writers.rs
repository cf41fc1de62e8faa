//! Writers of the clock page that are killed, in every order that the memory model allows.
//!
//! A model kills the writer before its first store to the page or to the start of a change, then before its second, and so on until
//! the writer completes. Meanwhile one thread reads by the slow path and one by the fast path. No read goes back or is torn. A read
//! makes at most one look more than there were new versions, so it waits for nobody. The next writer goes on from the state that
//! the dead one has left. Loom explores the orders with at most two preemptions of a thread, or three where a writer makes few
//! stores that readers see. `loom_page.rs` says how the models simplify.

#![cfg(loom)]

mod model;

use lorentz_clock::{Rate, RealInstant, Span};
use model::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Explores `what` with a writer that is killed before its store number 0, 1 and so on, until it completes in every order. `what`
/// returns what became of its writer.
fn at_every_store(
    preemptions: usize,
    what: impl Fn(usize) -> Killed + Copy + Send + Sync + 'static,
) {
    /// No writer makes fewer stores.
    const FEWEST: usize = 8;
    for nth in 0.. {
        let was_killed = Arc::new(AtomicBool::new(false));
        let killed = was_killed.clone();
        model(preemptions, move || {
            if !what(nth).completed {
                killed.store(true, Ordering::Relaxed);
            }
        });
        if !was_killed.load(Ordering::Relaxed) {
            assert!(nth >= FEWEST, "the writer made {nth} stores");
            return;
        }
    }
}

/// Kills a writer before its store number `nth`, while one thread reads by the slow path and one by the fast path.
fn kill_among_readers(world: &Arc<World>, nth: usize, writer: impl FnOnce(&World)) -> Killed {
    let slow = spawn(world, |world| {
        world.look();
    });
    let fast = spawn(world, |world| world.look_fast());
    let killed = world.kill_before_store(nth, writer);
    all([slow, fast]);
    killed
}

/// Checks that reads by both paths go on in piece `number`, and that the next writer's change follows it.
fn goes_on(world: &World, number: usize) {
    assert_eq!(world.look(), number);
    world.look_fast();
    world.change(Rate::ONE, Span(0), NOW);
    assert!(world.look() > number);
    world.look_fast();
}

/// Announces a change to `rate`. The change begins at the reading of that number, counted from 1, after this function has returned.
fn announce(world: &World, rate: Rate, reading: i64) -> RealInstant {
    /// Readings of the host's clock by the writer of a change.
    const BY_WRITER: i64 = 5;
    let at = world.host_after(BY_WRITER + reading);
    world.change(rate, Span(0), at);
    at
}

/// Lets the host's clock go on until `at`.
fn wait_until(world: &World, at: RealInstant) {
    while world.host() < at {}
}

#[test]
fn a_change_at_once_may_lose_its_writer_at_any_store() {
    at_every_store(2, |nth| {
        let world = World::new();
        world.change(rate(5), Span(0), NOW);
        let killed =
            kill_among_readers(&world, nth, |writer| writer.change_locked(rate(2), Span(0), NOW));
        goes_on(&world, if killed.made { 2 } else { 1 });
        killed
    });
}

/// The change is to begin while its writer still publishes it, or later.
#[test]
fn an_announced_change_may_lose_its_writer_at_any_store() {
    for reading in [3, 8] {
        at_every_store(2, move |nth| {
            let world = World::new();
            world.change(rate(5), Span(0), NOW);
            let at = world.host_after(reading);
            let announcing = |writer: &World| writer.change_locked(rate(2), Span(0), at);
            let killed = kill_among_readers(&world, nth, announcing);
            wait_until(&world, at);
            goes_on(&world, if killed.made { 2 } else { 1 });
            killed
        });
    }
}

/// The change begins before the announced one, which it drops.
#[test]
fn a_change_before_one_to_come_may_lose_its_writer_at_any_store() {
    at_every_store(2, |nth| {
        let world = World::new();
        let at = announce(&world, rate(5), 4);
        let killed =
            kill_among_readers(&world, nth, |writer| writer.change_locked(rate(2), Span(0), NOW));
        wait_until(&world, at);
        goes_on(&world, if killed.made { 2 } else { 1 });
        killed
    });
}

/// The new state is for processes that set their timers anew before the change begins.
#[test]
fn a_new_state_before_a_piece_to_come_may_lose_its_writer_at_any_store() {
    at_every_store(3, |nth| {
        let world = World::new();
        let at = announce(&world, rate(5), 3);
        let state = world.page.state();
        let killed = kill_among_readers(&world, nth, World::renew_locked);
        assert_eq!(world.page.state() != state, killed.made);
        wait_until(&world, at);
        goes_on(&world, 1);
        killed
    });
}

/// The change has begun, and the fast path still ends at its start.
#[test]
fn a_refresh_may_lose_its_writer_at_any_store() {
    at_every_store(3, |nth| {
        let world = World::new();
        announce(&world, rate(5), 1);
        let state = world.page.state();
        let killed = kill_among_readers(&world, nth, World::refresh_locked);
        assert_eq!(world.page.state() != state, killed.made);
        // The next monitor does what is left.
        world.refresh_locked();
        assert_ne!(world.page.state(), state);
        goes_on(&world, 1);
        killed
    });
}

/// A reader goes on while the next writer completes the change of the dead one and makes its own.
#[test]
fn the_next_writer_goes_on_from_any_store() {
    at_every_store(2, |nth| {
        let world = World::new();
        world.change(rate(5), Span(0), NOW);
        let reader = spawn(&world, |world| {
            world.look_fast();
            world.look();
        });
        let killed =
            world.kill_before_store(nth, |writer| writer.change_locked(rate(2), Span(0), NOW));
        world.change(Rate::ONE, Span(0), NOW);
        all([reader]);
        assert_eq!(world.look(), if killed.made { 3 } else { 2 });
        killed
    });
}
