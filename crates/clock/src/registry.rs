//! The waits and armed timers of every process on a clock, in shared memory.
//!
//! A controller that changes the clock reads here which threads have to look at the clock again. The programs write the registry,
//! so a controller believes nothing in it. It checks that a thread belongs to the container before it sends a signal to the
//! thread. A wrong deadline harms only the program that wrote it.
//!
//! A thread claims a slot by a compare-and-swap of the slot's owner, and frees it by storing 0. There is no other lock: a thread
//! may die or jump out of a wait at any point. The next controller finds such a slot and frees it.

use crate::failpoint::Failpoints;
use crate::file_marks::FileMarks;
use crate::instant::{RealInstant, Span, WallTime};
use crate::leaps::Leaps;
use crate::process::{PidNamespaces, ProcessId};
use crate::start::Start;
use crate::sync::{fence, AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::task_counters::{TaskCount, TaskCounters};
pub use deadline::Deadline;
use deadline::SharedDeadline;
pub use holder::{Epoch, Holder};
use size::{GROUP, PROBES};
pub use size::{TIMERS, WAITERS};

mod deadline;
mod holder;
mod relocate;

#[cfg(not(loom))]
mod size {
    /// Number of slots for waits on one clock.
    pub const WAITERS: usize = 16_384;
    /// Number of slots for timers on one clock.
    pub const TIMERS: usize = 8_192;
    /// Number of slots in which a key may stand.
    pub const PROBES: usize = 32;
    /// Number of slots for each bit of [`super::SlotGroups`].
    pub const GROUP: usize = 64;
}

/// Small sizes, so that the model has few states.
#[cfg(loom)]
#[allow(missing_docs)]
mod size {
    pub const WAITERS: usize = 2;
    pub const TIMERS: usize = 2;
    pub const PROBES: usize = 4;
    pub const GROUP: usize = 2;
}

/// One thread waiting in the kernel.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Waiter {
    /// The process in the high half, the thread id in the low half; 0 if the slot is free.
    owner: AtomicU64,
    deadline: SharedDeadline,
    /// The observed sequence: the state of the clock from which the wait was computed.
    observed_seq: AtomicU32,
    /// Number of the system call, for people.
    call: AtomicU32,
    /// Address on the thread's stack at which it waits. A lower address is deeper.
    depth: AtomicU64,
    /// Sum of leaps when the wait was computed, virtual ns.
    leapt: AtomicI64,
}

impl Waiter {
    /// Returns the waiting thread as (process, thread), with its number in its own process id namespace.
    pub fn owner(&self) -> Option<(ProcessId, u32)> {
        match self.owner.load(Ordering::Acquire) {
            0 => None,
            key => Some((process_in(key), key as u32)),
        }
    }

    /// Returns the deadline of the wait.
    pub fn deadline(&self) -> Deadline {
        self.deadline.load()
    }

    /// Returns the observed sequence: the state of the clock from which the wait was computed.
    pub fn observed_seq(&self) -> u32 {
        self.observed_seq.load(Ordering::Acquire)
    }

    /// Returns the number of the system call that waits.
    pub fn call(&self) -> u32 {
        self.call.load(Ordering::Relaxed)
    }

    /// Whether the slot belongs to a wait of `owner` at `depth`.
    pub fn is_of(&self, owner: (ProcessId, u32), depth: u64) -> bool {
        self.owner() == Some(owner) && self.depth.load(Ordering::Relaxed) == depth
    }

    /// Stands in place of the system call's number while a thread waits for send ordering ([`crate::ClockPage::send_order`]).
    pub const SEND_ORDER: u32 = u32::MAX;

    /// Returns the sum of leaps when the wait was computed. If the clock has leapt since, the kernel's timeout is too late by the
    /// difference.
    pub fn leapt(&self) -> Span {
        Span(self.leapt.load(Ordering::Relaxed))
    }

    /// States the wait's deadline. The thread looks at the clock afterwards.
    pub fn publish(&self, deadline: Deadline, call: u32, observed_seq: u32, leapt: Span) {
        self.deadline.store(deadline);
        self.leapt.store(leapt.0, Ordering::Relaxed);
        self.call.store(call, Ordering::Relaxed);
        store_observed_seq(&self.observed_seq, observed_seq);
    }

    /// Frees the slot.
    pub fn release(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Frees the slot if it belongs to `owner`.
    pub fn release_if(&self, owner: (ProcessId, u32)) {
        let _ = self.owner.compare_exchange(
            owner.0.key(owner.1),
            0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// The kind of an armed timer. It decides by which system call the shim sets the timer again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum TimerKind {
    /// A timer of timer_create. Its id is the kernel's timer id.
    Posix = 1,
    /// The timer of setitimer(ITIMER_REAL) and alarm. Its id is 0.
    Interval = 2,
    /// A timer of timerfd_create. Its id is the file descriptor.
    Fd = 3,
}

/// One timer: the setting that its program asked for, in virtual time.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Timer {
    owner: AtomicU64,
    deadline: SharedDeadline,
    interval: AtomicI64,
    observed_seq: AtomicU32,
    /// The clock id of the timer, plus [`Timer::CANCEL_ON_SET`] and [`Timer::CANCELLED`].
    clock: AtomicU32,
    /// The thread to which the signal goes; 0 if any thread of the process may take it.
    target: AtomicU32,
    /// The number of the signal that the timer sends; 0 for none.
    signal: AtomicU32,
    /// The instant for which the kernel's timer was set, ns of the host's CLOCK_MONOTONIC; [`RealInstant::NEVER`] while it is
    /// held back.
    armed: AtomicI64,
    /// The interval given to the kernel's timer, real ns.
    armed_interval: AtomicI64,
    /// Offset of the wall clock when the kernel's timer was set. A difference from the current offset shows that the wall clock
    /// was stepped.
    wall_secs: AtomicI64,
    wall_nanos: AtomicU64,
    /// Sum of leaps when the kernel's timer was set, virtual ns.
    leapt: AtomicI64,
    /// The thread that is setting the kernel's timer, as a [`Holder`]; 0 for none.
    holder: AtomicU64,
    /// Number of expiries that the kernel signals again because of the latest setting.
    signalled_again: AtomicI64,
}

/// The latest setting of the kernel's timer behind a [`Timer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Armed {
    /// The instant for which it was set, on the host's CLOCK_MONOTONIC; [`RealInstant::NEVER`] while it is held back.
    pub at: RealInstant,
    /// The interval after that instant, real ns; zero for a single expiry.
    pub interval: Span,
    /// The offset of the wall clock to the virtual monotonic clock at that moment.
    pub wall: WallTime,
    /// The sum of leaps at that moment.
    pub leapt: Span,
}

impl Armed {
    /// Makes the record of a kernel's timer that is not armed, with the wall clock's offset `wall`.
    pub fn disarmed(wall: WallTime) -> Armed {
        Armed { at: RealInstant::NEVER, interval: Span::ZERO, wall, leapt: Span::ZERO }
    }
}

/// The setting of a timer, in virtual time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The deadline as last set: that of the next expiry, or of the first one of a series.
    pub deadline: Deadline,
    /// The interval after that deadline, virtual ns; zero for a single expiry.
    pub interval: Span,
}

/// A timer's process, its kind, and its id there.
pub type TimerOwner = (ProcessId, TimerKind, u32);

impl Timer {
    /// Flag in the clock word: a step of the wall clock cancels the timer (TFD_TIMER_CANCEL_ON_SET).
    pub const CANCEL_ON_SET: u32 = 1 << 16;
    /// Flag in the clock word: the kernel's timer is not on the monotonic clock, so the shim sets it by relative times.
    pub const RELATIVE: u32 = 1 << 18;
    /// Flag in the clock word: a step of the wall clock has cancelled the timer, and the next read has yet to return ECANCELED.
    pub const CANCELLED: u32 = 1 << 17;
    /// Flag in the clock word: a signal that is pending may be from before the process came to this clock, by a restore or an attach.
    const SIGNALLED_BEFORE: u32 = 1 << 19;

    /// Returns the timer's process, kind and id.
    pub fn owner(&self) -> Option<TimerOwner> {
        let key = self.owner.load(Ordering::Acquire);
        let kind = match (key >> 28) & 0xf {
            1 => TimerKind::Posix,
            2 => TimerKind::Interval,
            3 => TimerKind::Fd,
            _ => return None,
        };
        Some((process_in(key), kind, key as u32 & TIMER_ID))
    }

    /// Returns the timer's setting.
    pub fn setting(&self) -> Setting {
        Setting {
            deadline: self.deadline.load(),
            interval: Span(self.interval.load(Ordering::Relaxed)),
        }
    }

    /// Stores the timer's setting, which was computed from state `observed_seq` of the clock.
    pub fn set(&self, setting: Setting, observed_seq: u32) {
        self.deadline.store(setting.deadline);
        self.interval.store(setting.interval.0, Ordering::Relaxed);
        store_observed_seq(&self.observed_seq, observed_seq);
    }

    /// Returns the observed sequence: the state of the clock by which the kernel's timer was set.
    pub fn observed_seq(&self) -> u32 {
        self.observed_seq.load(Ordering::Acquire)
    }

    /// Whether the kernel's timer is right for state `sequence` of a clock whose leaps add up to `leapt`.
    pub fn is_current(&self, sequence: u32, leapt: Span) -> bool {
        self.observed_seq() == sequence
            && (self.leapt.load(Ordering::Relaxed) == leapt.0
                || self.deadline.load() == Deadline::Never)
    }

    /// Stores the observed sequence: the kernel's timer is set by state `observed_seq` of the clock.
    pub fn set_observed_seq(&self, observed_seq: u32) {
        store_observed_seq(&self.observed_seq, observed_seq);
    }

    /// Returns the latest setting of the kernel's timer.
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

    /// Stores the latest setting of the kernel's timer.
    pub fn set_armed(&self, armed: Armed) {
        self.armed.store(armed.at.0, Ordering::Relaxed);
        self.armed_interval.store(armed.interval.0, Ordering::Relaxed);
        self.wall_secs.store(armed.wall.secs, Ordering::Relaxed);
        self.wall_nanos.store(armed.wall.nanos as u64, Ordering::Relaxed);
        self.leapt.store(armed.leapt.0, Ordering::Relaxed);
    }

    /// Returns the clock id and flags.
    pub fn clock(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Stores the clock id and flags.
    pub fn set_clock(&self, clock: u32) {
        self.clock.store(clock, Ordering::Relaxed);
    }

    /// Notes that a pending signal may be from before the process came to this clock.
    pub fn note_signal_before(&self) {
        self.set_clock(self.clock() | Timer::SIGNALLED_BEFORE);
    }

    /// Whether [`Timer::note_signal_before`] has noted something.
    pub fn is_signalled_before(&self) -> bool {
        self.clock() & Timer::SIGNALLED_BEFORE != 0
    }

    /// Returns what [`Timer::note_signal_before`] has noted, once.
    pub fn take_signal_before(&self) -> bool {
        let clock = self.clock();
        self.set_clock(clock & !Timer::SIGNALLED_BEFORE);
        clock & Timer::SIGNALLED_BEFORE != 0
    }

    /// Returns the number of the signal that the timer sends; 0 for none.
    pub fn signal(&self) -> u32 {
        self.signal.load(Ordering::Relaxed)
    }

    /// Stores the number of the signal that the timer sends.
    pub fn set_signal(&self, signal: u32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Returns the thread to which the signal goes (SIGEV_THREAD_ID); 0 if any thread of the process may take it.
    pub fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Stores the thread to which the signal goes.
    pub fn set_target(&self, thread: u32) {
        self.target.store(thread, Ordering::Relaxed);
    }

    /// Returns the number of expiries that the kernel signals again because of the latest setting.
    pub fn signalled_again(&self) -> i64 {
        self.signalled_again.load(Ordering::Relaxed)
    }

    /// Stores the number of expiries that the kernel signals again.
    pub fn set_signalled_again(&self, expiries: i64) {
        self.signalled_again.store(expiries, Ordering::Relaxed);
    }

    /// Takes the right to set the kernel's timer.
    ///
    /// Only threads of the timer's own process call this. If the holder has another [`Epoch`], it was killed while it held the
    /// right: by an exec, or with its process before the kernel gave the process id again. The caller then takes the right over.
    ///
    /// # Errors
    ///
    /// The thread that has the right.
    pub fn begin_setting(&self, thread: Holder) -> Result<(), Holder> {
        // The other side of the fence in `end_setting`.
        fence(Ordering::SeqCst);
        let mut before = 0;
        loop {
            let taken = self.holder.compare_exchange(
                before,
                thread.to_bits(),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match taken.map_err(Holder::from_bits) {
                Ok(_) => {
                    // A controller that does not find this mark has begun its hold before: this thread sees the hold.
                    fence(Ordering::SeqCst);
                    return Ok(());
                }
                Err(Some(holder)) if holder.epoch == thread.epoch => return Err(holder),
                Err(other) => before = other.map_or(0, Holder::to_bits),
            }
        }
    }

    /// As [`Timer::begin_setting`], where the caller has found this slot as that of `owner`. False if it is no more: the right is not
    /// taken.
    ///
    /// Race: between the look and the right the slot is released, and another timer gets it. Nobody releases a slot without the right.
    ///
    /// # Errors
    ///
    /// As [`Timer::begin_setting`].
    pub fn begin_setting_of(
        &self,
        (process, kind, id): TimerOwner,
        thread: Holder,
    ) -> Result<bool, Holder> {
        self.begin_setting(thread)?;
        // By the key: a program may name an id that is larger than the key has room for.
        let is_its = self.owner.load(Ordering::Acquire) == timer_key(process, kind, id);
        if !is_its {
            self.end_setting();
        }
        Ok(is_its)
    }

    /// Gives the right to set the kernel's timer back. A thread that has found the right taken has seen a state of the clock that the
    /// caller sees too from now on.
    pub fn end_setting(&self) {
        self.holder.store(0, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether a thread has the right to set the kernel's timer, or was killed while it had the right.
    pub fn is_being_set(&self) -> bool {
        self.holder.load(Ordering::Acquire) != 0
    }

    /// Frees the slot. While its process may have another thread, the caller has the right to set the kernel's timer.
    pub fn release(&self) {
        // The next timer in this slot is not armed.
        self.deadline.store(Deadline::Never);
        self.owner.store(0, Ordering::Release);
    }

    /// Frees the slot if it belongs to `owner`, whose process has ended.
    pub fn release_if(&self, (process, kind, id): TimerOwner) {
        let key = timer_key(process, kind, id);
        let _ = self.owner.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The tables, behind the clock page in the clock's file. Every program on the clock maps them shared and writable.
#[repr(C, align(4096))]
#[cfg_attr(loom, derive(Default))]
pub struct Registry {
    /// The leaps over idle time.
    pub leaps: Leaps,
    /// The task counters.
    pub task_counters: TaskCounters,
    /// The process id namespaces of the programs.
    pub pid_namespaces: PidNamespaces,
    /// The start of the latest change of the clock.
    pub start: Start,
    /// Number of epochs given so far.
    epochs: AtomicU32,
    /// Whether programs have marked files.
    pub file_marks: FileMarks,
    /// The places at which a test stops threads. Takes no memory in a build without failpoints.
    pub failpoints: Failpoints,
    /// A bit for each [`GROUP`] slots, set when one of them is claimed for the first time. Groups whose bit is clear need not be
    /// read, and take no memory.
    waiter_groups: SlotGroups<{ WAITERS.div_ceil(GROUP * 64) }>,
    timer_groups: SlotGroups<{ TIMERS.div_ceil(GROUP * 64) }>,
    waiters: [Waiter; WAITERS],
    timers: [Timer; TIMERS],
}

/// Offset of the failpoints' words in the registry, bytes.
#[cfg(all(feature = "failpoints", not(loom)))]
pub(crate) const FAILPOINTS_OFFSET: usize = core::mem::offset_of!(Registry, failpoints);

#[repr(C, align(64))]
struct SlotGroups<const WORDS: usize>([AtomicU64; WORDS]);

#[cfg(loom)]
impl<const WORDS: usize> Default for SlotGroups<WORDS> {
    fn default() -> Self {
        SlotGroups(core::array::from_fn(|_| AtomicU64::default()))
    }
}

impl<const WORDS: usize> SlotGroups<WORDS> {
    fn mark_used(&self, slot: usize) {
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

impl AsRef<Failpoints> for Registry {
    fn as_ref(&self) -> &Failpoints {
        &self.failpoints
    }
}

impl Registry {
    /// Claims a slot for a wait of `thread` in `process` at `depth`, an address on the thread's stack.
    ///
    /// The result is `None` if all slots where the key may stand are taken. If the thread still has a slot from deeper in its
    /// stack, it has left that wait by a jump. The call then takes that slot. It is also possible that a handler on another stack
    /// interrupted that wait. The wait then claims another slot.
    pub fn claim_waiter(&self, process: ProcessId, thread: u32, depth: u64) -> Option<&Waiter> {
        let key = process.key(thread);
        let left_behind = |slot: &Waiter| {
            slot.owner.load(Ordering::Relaxed) == key && slot.depth.load(Ordering::Relaxed) <= depth
        };
        let slot = probe_slots(thread, key, WAITERS).find(|i| {
            let slot = &self.waiters[*i];
            left_behind(slot) || claim(&slot.owner, key)
        })?;
        self.waiters[slot].depth.store(depth, Ordering::Relaxed);
        self.waiter_groups.mark_used(slot);
        Some(&self.waiters[slot])
    }

    /// Adds a leap over idle time: [`Leaps::leap`].
    pub fn leap(&self, from: Span, by: Span, at: RealInstant) -> bool {
        self.leaps.leap(&self.failpoints, from, by, at)
    }

    /// Marks a thread as the sole one on the clock: [`TaskCounters::mark_sole_thread`].
    pub fn mark_sole_thread(&self, thread: (ProcessId, u32), count: TaskCount) {
        self.task_counters.mark_sole_thread(&self.failpoints, thread, count);
    }

    /// Returns an epoch that no other process has had.
    pub fn new_epoch(&self) -> Epoch {
        // Epochs begin at 1, so that zeroed memory names none.
        Epoch(self.epochs.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1))
    }

    /// Returns all waits, in no order.
    pub fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let slots = self.waiter_groups.slots().map(|i| &self.waiters[i]);
        slots.filter(|slot| slot.owner.load(Ordering::Relaxed) != 0)
    }

    /// Returns a timer's slot, if it has one.
    pub fn find_timer(&self, process: ProcessId, kind: TimerKind, id: u32) -> Option<&Timer> {
        let key = timer_key(process, kind, id);
        timer_slots(key)
            .map(|i| &self.timers[i])
            .find(|slot| slot.owner.load(Ordering::Acquire) == key)
    }

    /// Returns a timer's slot, and claims one if it has none. `None` means that all slots where its key may stand are taken.
    pub fn claim_timer(&self, process: ProcessId, kind: TimerKind, id: u32) -> Option<&Timer> {
        if let Some(slot) = self.find_timer(process, kind, id) {
            return Some(slot);
        }
        let key = timer_key(process, kind, id);
        let slot = timer_slots(key).find(|i| claim(&self.timers[*i].owner, key))?;
        self.timer_groups.mark_used(slot);
        let timer = &self.timers[slot];
        timer.set_target(0);
        timer.set_signalled_again(0);
        Some(timer)
    }

    /// Returns all timers, in no order.
    pub fn timers(&self) -> impl Iterator<Item = &Timer> {
        let slots = self.timer_groups.slots().map(|i| &self.timers[i]);
        slots.filter(|slot| slot.owner.load(Ordering::Relaxed) != 0)
    }
}

/// Stores the observed sequence, and with it everything that was stated before. The store is followed by a full fence. Either the
/// clock's writer finds the stored value, or the caller's next look at the clock finds the writer's change.
fn store_observed_seq(word: &AtomicU32, state: u32) {
    word.store(state, Ordering::Release);
    fence(Ordering::SeqCst);
}

fn claim(owner: &AtomicU64, key: u64) -> bool {
    owner.load(Ordering::Relaxed) == 0
        && owner.compare_exchange(0, key, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn timer_slots(key: u64) -> impl Iterator<Item = usize> {
    let (process, id) = ((key >> 32) as u32, key as u32 & TIMER_ID);
    probe_slots(process.wrapping_mul(32).wrapping_add(id), key, TIMERS)
}

fn process_in(key: u64) -> ProcessId {
    ProcessId::from_bits((key >> 32) as u32)
}

/// Mask of the id in a timer's key.
const TIMER_ID: u32 = 0x0fff_ffff;

fn timer_key(process: ProcessId, kind: TimerKind, id: u32) -> u64 {
    (process.bits() as u64) << 32 | (kind as u64) << 28 | (id & TIMER_ID) as u64
}

/// Returns the slots where `key` may stand, in order, in a table of `len` slots (a power of two).
///
/// The first ones follow `near`: thread ids are consecutive, so a search through the whole table touches little memory. If other
/// keys have filled that neighbourhood, the same number of slots follows, spread over the whole table.
fn probe_slots(near: u32, key: u64, len: usize) -> impl Iterator<Item = usize> {
    /// An odd step, whose multiples are spread evenly over any table.
    const FAR_STEP: usize = 10_125;
    let far = (key.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as usize;
    let rows = [(near as usize, 1), (far, FAR_STEP)].into_iter();
    rows.flat_map(move |(start, step)| {
        (0..PROBES / 2).map(move |i| start.wrapping_add(i * step) & (len - 1))
    })
}
