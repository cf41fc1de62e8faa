//! What is waiting for what: the waits and armed timers of every process on a clock, in shared memory.
//!
//! Whoever changes the clock reads here which threads have to look at it again. The programs write it, so
//! nothing in it is believed: a reader of the table checks that a thread belongs to the container before it
//! sends it a signal, and a wrong deadline harms only the program that wrote it.
//!
//! A slot is claimed by storing its owner's key with a compare-and-swap and freed by storing 0. There is no
//! other lock: a thread may die or jump out of a wait at any point, and whoever finds its slot later frees it.

use crate::instant::{RealInstant, Span, VirtualInstant, WallTime};
use crate::leaps::Leaps;
use crate::page::Start;
use crate::population::Population;
use crate::process::{ProcessId, Spaces};
use crate::sync::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering};
use size::{GROUP, PROBES};
pub use size::{TIMERS, WAITERS};

#[cfg(not(loom))]
mod size {
    /// Waits that can be registered at once on one clock.
    pub const WAITERS: usize = 16_384;
    /// Timers that can be registered at once on one clock.
    pub const TIMERS: usize = 8_192;
    /// In how many places a key is looked for.
    pub const PROBES: usize = 32;
    /// Slots per bit of [`super::Groups`].
    pub const GROUP: usize = 64;
}

/// Small, so that the model stays small.
#[cfg(loom)]
#[allow(missing_docs)]
mod size {
    pub const WAITERS: usize = 2;
    pub const TIMERS: usize = 2;
    pub const PROBES: usize = 4;
    pub const GROUP: usize = 2;
}

/// When a wait or a timer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// At an instant of the virtual monotonic clock.
    Virtual(VirtualInstant),
    /// When the wall clock shows a time; moves when the wall clock is stepped.
    Wall(WallTime),
    /// Not by itself.
    Never,
}

/// A [`Deadline`] as it lies in shared memory.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
struct SharedDeadline {
    /// 0 never, 1 virtual, 2 wall.
    kind: AtomicU32,
    nanos: AtomicU32,
    /// Virtual nanoseconds, or seconds of wall time.
    value: AtomicI64,
}

impl SharedDeadline {
    fn store(&self, deadline: Deadline) {
        let (kind, value, nanos) = match deadline {
            Deadline::Never => (0, 0, 0),
            Deadline::Virtual(instant) => (1, instant.0, 0),
            Deadline::Wall(wall) => (2, wall.secs, wall.nanos),
        };
        self.value.store(value, Ordering::Relaxed);
        self.nanos.store(nanos, Ordering::Relaxed);
        self.kind.store(kind, Ordering::Relaxed);
    }

    fn load(&self) -> Deadline {
        let value = self.value.load(Ordering::Relaxed);
        match self.kind.load(Ordering::Relaxed) {
            1 => Deadline::Virtual(VirtualInstant(value)),
            2 => {
                Deadline::Wall(WallTime { secs: value, nanos: self.nanos.load(Ordering::Relaxed) })
            }
            _ => Deadline::Never,
        }
    }
}

/// One thread waiting in the kernel.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Waiter {
    /// The process in the high half, thread id in the low half; 0 where the slot is free.
    owner: AtomicU64,
    deadline: SharedDeadline,
    /// The state of the clock that the wait was computed from.
    seen: AtomicU32,
    /// Number of the system call, for people.
    call: AtomicU32,
    /// Where on its stack the thread waits: lower is deeper.
    depth: AtomicU64,
    /// What had been leapt over when the wait was computed.
    leapt: AtomicI64,
}

impl Waiter {
    /// The waiting thread as (process, thread), as numbered in its own process id namespace.
    pub fn owner(&self) -> Option<(ProcessId, u32)> {
        match self.owner.load(Ordering::Acquire) {
            0 => None,
            key => Some((process_in(key), key as u32)),
        }
    }

    /// When the wait ends.
    pub fn deadline(&self) -> Deadline {
        self.deadline.load()
    }

    /// The state of the clock that the wait was computed from.
    pub fn seen(&self) -> u32 {
        self.seen.load(Ordering::Acquire)
    }

    /// Number of the system call that waits.
    pub fn call(&self) -> u32 {
        self.call.load(Ordering::Relaxed)
    }

    /// Whether the slot is that of a wait of `owner` at `depth`.
    pub fn is_of(&self, owner: (ProcessId, u32), depth: u64) -> bool {
        self.owner() == Some(owner) && self.depth.load(Ordering::Relaxed) == depth
    }

    /// In place of the call's number: the thread waits for its turn to send ([`crate::ClockPage::turn`]).
    pub const TURN: u32 = u32::MAX;

    /// What had been leapt over when the wait was computed: by more than that its timeout is too late now.
    pub fn leapt(&self) -> Span {
        Span(self.leapt.load(Ordering::Relaxed))
    }

    /// States what is waited for, before the clock is looked at.
    pub fn publish(&self, deadline: Deadline, call: u32, seen: u32, leapt: Span) {
        self.deadline.store(deadline);
        self.leapt.store(leapt.0, Ordering::Relaxed);
        self.call.store(call, Ordering::Relaxed);
        state_seen(&self.seen, seen);
    }

    /// Frees the slot.
    pub fn release(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Frees the slot if it still belongs to `owner`.
    pub fn release_if(&self, owner: (ProcessId, u32)) {
        let _ = self.owner.compare_exchange(
            owner.0.key(owner.1),
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// What kind of thing an armed timer is, and so how it is set again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum TimerKind {
    /// timer_create; the id is the kernel's timer id.
    Posix = 1,
    /// setitimer(ITIMER_REAL) and alarm; the id is 0.
    Interval = 2,
    /// timerfd_create; the id is the file descriptor.
    Fd = 3,
}

/// One timer: what its program asked for, in virtual time.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Timer {
    owner: AtomicU64,
    deadline: SharedDeadline,
    interval: AtomicI64,
    seen: AtomicU32,
    /// The clock id it was created on, plus [`Timer::CANCEL_ON_SET`] and [`Timer::CANCELLED`].
    clock: AtomicU32,
    /// The thread that the signal goes to; 0 where any thread of the process may take it.
    target: AtomicU32,
    /// The signal it sends, where it sends one.
    signal: AtomicU32,
    /// When the kernel's timer was set to go off; [`RealInstant::NEVER`] where it is held back.
    armed: AtomicI64,
    /// The interval the kernel's timer was given.
    armed_interval: AtomicI64,
    /// What the wall clock was ahead when it was set: tells a step.
    wall_secs: AtomicI64,
    wall_nanos: AtomicU64,
    /// What had been leapt over when it was set.
    leapt: AtomicI64,
    /// The thread that sets the kernel's timer: a [`Holder`]. 0 where there is none.
    holder: AtomicU64,
    /// Expiries that the kernel was made to signal again when it was set.
    signalled_again: AtomicI64,
}

/// How the kernel's timer behind a [`Timer`] was last set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Armed {
    /// When it was to go off, on the host's CLOCK_MONOTONIC; never where it is held back.
    pub at: RealInstant,
    /// Every so many real nanoseconds after that; zero: once.
    pub interval: Span,
    /// What the wall clock was ahead of the virtual monotonic clock then.
    pub wall: WallTime,
    /// What had been leapt over then.
    pub leapt: Span,
}

impl Armed {
    /// Not set to go off, while the wall clock is `wall` ahead.
    pub fn by(wall: WallTime) -> Armed {
        Armed { at: RealInstant::NEVER, interval: Span::ZERO, wall, leapt: Span::ZERO }
    }
}

/// The life of a process from its start, by fork or by exec, to its next exec or its end. No two processes on a clock have the
/// same, and neither has a later process with the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Epoch(pub u32);

/// A thread that holds something in shared memory, in a way that others can tell whether it may still be alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The life of its process.
    pub epoch: Epoch,
    /// Its number; never 0.
    pub thread: u32,
}

impl Holder {
    fn to_bits(self) -> u64 {
        u64::from(self.epoch.0) << 32 | u64::from(self.thread)
    }

    fn from_bits(bits: u64) -> Option<Holder> {
        (bits != 0).then_some(Holder { epoch: Epoch((bits >> 32) as u32), thread: bits as u32 })
    }
}

/// What a timer is set to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// When it goes off next, as last set: the first of the series where it repeats.
    pub deadline: Deadline,
    /// Every so many virtual nanoseconds after that; zero: once.
    pub interval: Span,
}

impl Timer {
    /// In the clock word: a step of the wall clock cancels it (TFD_TIMER_CANCEL_ON_SET).
    pub const CANCEL_ON_SET: u32 = 1 << 16;
    /// In the clock word: the kernel's timer is not on the monotonic clock, and is set by lengths of time.
    pub const RELATIVE: u32 = 1 << 18;
    /// In the clock word: it has been cancelled by a step, and its reader has not been told yet.
    pub const CANCELLED: u32 = 1 << 17;

    /// The process it belongs to, its kind and id.
    pub fn owner(&self) -> Option<(ProcessId, TimerKind, u32)> {
        let key = self.owner.load(Ordering::Acquire);
        let kind = match (key >> 28) & 0xf {
            1 => TimerKind::Posix,
            2 => TimerKind::Interval,
            3 => TimerKind::Fd,
            _ => return None,
        };
        Some((process_in(key), kind, key as u32 & TIMER_ID))
    }

    /// What it is set to.
    pub fn setting(&self) -> Setting {
        Setting {
            deadline: self.deadline.load(),
            interval: Span(self.interval.load(Ordering::Relaxed)),
        }
    }

    /// States what it is set to, computed from state `seen` of the clock.
    pub fn set(&self, setting: Setting, seen: u32) {
        self.deadline.store(setting.deadline);
        self.interval.store(setting.interval.0, Ordering::Relaxed);
        state_seen(&self.seen, seen);
    }

    /// The state of the clock the kernel's timer was set by.
    pub fn seen(&self) -> u32 {
        self.seen.load(Ordering::Acquire)
    }

    /// Whether the kernel's timer is right for state `sequence` of the clock, which has leapt by `leapt`.
    pub fn is_set_by(&self, sequence: u32, leapt: Span) -> bool {
        self.seen() == sequence
            && (self.leapt.load(Ordering::Relaxed) == leapt.0
                || self.deadline.load() == Deadline::Never)
    }

    /// States that the kernel's timer is set by state `seen` of the clock.
    pub fn set_seen(&self, seen: u32) {
        state_seen(&self.seen, seen);
    }

    /// How the kernel's timer was last set.
    pub fn armed(&self) -> Armed {
        Armed {
            at: RealInstant(self.armed.load(Ordering::Relaxed)),
            interval: Span(self.armed_interval.load(Ordering::Relaxed)),
            wall: WallTime {
                secs: self.wall_secs.load(Ordering::Relaxed),
                nanos: self.wall_nanos.load(Ordering::Relaxed) as u32,
            },
            leapt: Span(self.leapt.load(Ordering::Relaxed)),
        }
    }

    /// States how the kernel's timer has been set.
    pub fn set_armed(&self, armed: Armed) {
        self.armed.store(armed.at.0, Ordering::Relaxed);
        self.armed_interval.store(armed.interval.0, Ordering::Relaxed);
        self.wall_secs.store(armed.wall.secs, Ordering::Relaxed);
        self.wall_nanos.store(armed.wall.nanos as u64, Ordering::Relaxed);
        self.leapt.store(armed.leapt.0, Ordering::Relaxed);
    }

    /// Clock id and flags.
    pub fn clock(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Sets clock id and flags.
    pub fn set_clock(&self, clock: u32) {
        self.clock.store(clock, Ordering::Relaxed);
    }

    /// The signal it sends; 0 where it sends none.
    pub fn signal(&self) -> u32 {
        self.signal.load(Ordering::Relaxed)
    }

    /// Sets the signal it sends.
    pub fn set_signal(&self, signal: u32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// The thread of its process that the signal goes to (SIGEV_THREAD_ID); 0 where any thread may take it.
    pub fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Sets the thread that the signal goes to.
    pub fn set_target(&self, thread: u32) {
        self.target.store(thread, Ordering::Relaxed);
    }

    /// Expiries that the kernel was made to signal again when the timer was last set.
    pub fn signalled_again(&self) -> i64 {
        self.signalled_again.load(Ordering::Relaxed)
    }

    /// States how many expiries the kernel signals again.
    pub fn set_signalled_again(&self, expiries: i64) {
        self.signalled_again.store(expiries, Ordering::Relaxed);
    }

    /// Takes the right to set the kernel's timer. `Err` where another thread has it.
    ///
    /// Only threads of the timer's own process ask. One of another [`Epoch`] was killed while it held the right, by an exec
    /// or with its process before the number was given again: the right is taken from it.
    ///
    /// # Errors
    ///
    /// The thread that has the right.
    pub fn begin(&self, thread: Holder) -> Result<(), Holder> {
        let mut before = 0;
        loop {
            let taken = self.holder.compare_exchange(
                before,
                thread.to_bits(),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken.map_err(Holder::from_bits) {
                Ok(_) => return Ok(()),
                Err(Some(holder)) if holder.epoch == thread.epoch => return Err(holder),
                Err(other) => before = other.map_or(0, Holder::to_bits),
            }
        }
    }

    /// Gives that right back.
    pub fn end(&self) {
        self.holder.store(0, Ordering::Release);
    }

    /// Whether a thread has that right, or was killed while it had it.
    pub fn is_held(&self) -> bool {
        self.holder.load(Ordering::Acquire) != 0
    }

    /// Frees the slot.
    pub fn release(&self) {
        self.owner.store(0, Ordering::Release);
    }
}

/// The tables. Lies behind the clock page in the clock's file; shared, writable by every program on the clock.
#[repr(C, align(4096))]
#[cfg_attr(loom, derive(Default))]
pub struct Registry {
    /// What has been leapt over.
    pub leaps: Leaps,
    /// Who has come.
    pub population: Population,
    /// The process id namespaces of the programs.
    pub spaces: Spaces,
    /// When the latest change of the clock begins.
    pub start: Start,
    /// Lives of processes so far.
    epochs: AtomicU32,
    /// Where a test has threads stop.
    #[cfg(all(feature = "failpoints", not(loom)))]
    pub failpoints: crate::failpoint::Failpoints,
    /// Where the model has a writer die.
    #[cfg(loom)]
    pub dies_at: std::sync::Mutex<Option<crate::Failpoint>>,
    /// A bit per [`GROUP`] slots that have ever been claimed: the others need not be looked at, and take no memory.
    waiter_groups: Groups<{ WAITERS.div_ceil(GROUP * 64) }>,
    timer_groups: Groups<{ TIMERS.div_ceil(GROUP * 64) }>,
    waiters: [Waiter; WAITERS],
    timers: [Timer; TIMERS],
}

#[repr(C, align(64))]
struct Groups<const WORDS: usize>([AtomicU64; WORDS]);

#[cfg(loom)]
impl<const WORDS: usize> Default for Groups<WORDS> {
    fn default() -> Self {
        Groups(core::array::from_fn(|_| AtomicU64::default()))
    }
}

impl<const WORDS: usize> Groups<WORDS> {
    fn note(&self, slot: usize) {
        let (word, bit) = (&self.0[slot / GROUP / 64], 1 << (slot / GROUP % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().map(|word| word.load(Ordering::SeqCst));
        let groups = words.enumerate().flat_map(|(i, word)| {
            (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| i * 64 + bit)
        });
        groups.flat_map(|group| group * GROUP..(group + 1) * GROUP)
    }
}

impl Registry {
    /// Claims a slot for a wait of `thread` in `process` at `depth`, the address of something on its stack; none where
    /// all its places are taken. A slot that the thread still has from deeper in its stack is of a wait that it has
    /// jumped out of, and is taken. (Or of one that a handler on another stack has interrupted: it claims another.)
    pub fn claim_waiter(&self, process: ProcessId, thread: u32, depth: u64) -> Option<&Waiter> {
        let key = process.key(thread);
        let left_behind = |slot: &Waiter| {
            slot.owner.load(Ordering::Relaxed) == key && slot.depth.load(Ordering::Relaxed) <= depth
        };
        let place = places(thread, key, WAITERS).find(|i| {
            let slot = &self.waiters[*i];
            left_behind(slot) || claim(&slot.owner, key)
        })?;
        self.waiters[place].depth.store(depth, Ordering::Relaxed);
        self.waiter_groups.note(place);
        Some(&self.waiters[place])
    }

    /// A life of a process that no other has had.
    pub fn new_epoch(&self) -> Epoch {
        // From 1 on, so that zeroed memory is none.
        Epoch(self.epochs.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1))
    }

    /// All waits, in no order.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let slots = self.waiter_groups.slots().map(|i| &self.waiters[i]);
        slots.filter(|slot| slot.owner.load(Ordering::Relaxed) != 0)
    }

    /// The slot of a timer, if it has one.
    pub fn find_timer(&self, process: ProcessId, kind: TimerKind, id: u32) -> Option<&Timer> {
        let key = timer_key(process, kind, id);
        timer_places(key)
            .map(|i| &self.timers[i])
            .find(|slot| slot.owner.load(Ordering::Acquire) == key)
    }

    /// The slot of a timer, claimed if it has none; none where all its places are taken.
    pub fn claim_timer(&self, process: ProcessId, kind: TimerKind, id: u32) -> Option<&Timer> {
        if let Some(slot) = self.find_timer(process, kind, id) {
            return Some(slot);
        }
        let key = timer_key(process, kind, id);
        let place = timer_places(key).find(|i| claim(&self.timers[*i].owner, key))?;
        self.timer_groups.note(place);
        let timer = &self.timers[place];
        timer.set_target(0);
        timer.set_signalled_again(0);
        Some(timer)
    }

    /// All timers, in no order.
    pub fn timers(&self) -> impl Iterator<Item = &Timer> {
        let slots = self.timer_groups.slots().map(|i| &self.timers[i]);
        slots.filter(|slot| slot.owner.load(Ordering::Relaxed) != 0)
    }
}

/// States which state of the clock has been seen, and with it all that was stated before. A full fence: either the writer
/// of the clock finds it, or the look at the clock that follows finds the writer's change.
fn state_seen(seen: &AtomicU32, state: u32) {
    seen.store(state, Ordering::Release);
    fence(Ordering::SeqCst);
}

fn claim(owner: &AtomicU64, key: u64) -> bool {
    owner.load(Ordering::Relaxed) == 0
        && owner.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn timer_places(key: u64) -> impl Iterator<Item = usize> {
    let (process, id) = ((key >> 32) as u32, key as u32 & TIMER_ID);
    places(process.wrapping_mul(32).wrapping_add(id), key, TIMERS)
}

fn process_in(key: u64) -> ProcessId {
    ProcessId::from_bits((key >> 32) as u32)
}

/// The part of a timer's key that is its id.
const TIMER_ID: u32 = 0x0fff_ffff;

fn timer_key(process: ProcessId, kind: TimerKind, id: u32) -> u64 {
    (process.bits() as u64) << 32 | (kind as u64) << 28 | (id & TIMER_ID) as u64
}

/// The places of a table of `len` (a power of two) where `key` may stand, in order. First those from `near` on: threads
/// are numbered in a row, and so whoever looks through the table touches little memory. Where others have filled the
/// neighbourhood, as many places all over the table.
fn places(near: u32, key: u64, len: usize) -> impl Iterator<Item = usize> {
    /// Odd, and its multiples lie evenly in any table.
    const ALL_OVER: usize = 10_125;
    let far = (key.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as usize;
    let rows = [(near as usize, 1), (far, ALL_OVER)].into_iter();
    rows.flat_map(move |(start, step)| {
        (0..PROBES / 2).map(move |i| start.wrapping_add(i * step) & (len - 1))
    })
}
