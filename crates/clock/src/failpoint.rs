//! Failpoints: places at which a test has a thread stop, so that it can be killed, or overtaken, just there.
//!
//! Only with the feature `failpoints`, which no release has. A test maps the clock's file, arms a point, waits until a thread has
//! arrived there, does something, and lets the thread go: see `tests/framework/failpoints.py`.

use crate::registry::Registry;

macro_rules! failpoints {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The places.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Failpoint {
            $($(#[doc = $doc])* $name,)*
        }

        impl Failpoint {
            /// All of them, with their names.
            pub const ALL: &'static [(Failpoint, &'static str)] =
                &[$((Failpoint::$name, stringify!($name)),)*];
        }
    };
}

failpoints! {
    /// A writer, before it has written anything.
    BeforePiece,
    /// A writer, with piece and view written.
    BeforeOpen,
    /// A writer, just before the store that publishes.
    BeforeVersion,
    /// A writer, just after it.
    AfterVersion,
    /// A reader that is about to decide when a change begins.
    ReaderDecides,
    /// A writer, with the start decided.
    AfterDecision,
    /// A writer, with the start written into the piece.
    BeforeFastPath,
    /// A controller that has published a change, and has told nobody.
    BeforeTell,
    /// A controller that has told everybody, and has not stated it.
    AfterTell,
    /// A controller that has begun to hold timers back, and has told nobody.
    HoldBegun,
    /// A controller whose hold all timers follow, before it publishes the change.
    HoldFollowed,
    /// A controller that gives those more time whose timers do not follow the hold.
    PutOff,
    /// A controller that is about to let idle time be skipped: leaps are believed.
    SkippingBelieved,
    /// A controller, when a change has begun that was to come.
    BeforeRefresh,
    /// A leap over idle time, added to the sum and not yet in the log.
    LeapBeforeLog,
    /// The same, with half of its entry written.
    LeapInLog,
    /// A skipper that has leapt, and has told nobody.
    LeapBeforeTell,
    /// A skipper in the midst of vouching for a thread.
    VouchHalf,
    /// A wait that has a place in the registry, and has not stated its deadline.
    WaitClaimed,
    /// A wait that has stated its deadline, before it blocks.
    WaitStated,
    /// A wait that has looked for pending signals, before the program's mask is in force.
    BeforeOpenGate,
    /// A wait that is over, and still has its place.
    WaitLeaving,
    /// A thread that has the right to set a timer.
    TimerHeld,
    /// A thread that has asked the kernel when a timer goes off next, and not yet what the program was not told of.
    TimerLookedAt,
    /// A thread that has set the kernel's timer, and not the registry.
    TimerArmed,
    /// A thread that uses what is remembered of CPU times.
    AnchorsHeld,
    /// A thread that notes a descriptor, half done.
    NotedHalf,
    /// A thread that is about to add a filter.
    BeforeFilter,
    /// A thread that has added it, and has not noted it.
    AfterFilter,
    /// A monitor that has seized a thread at its exec.
    ExecSeized,
    /// A monitor that has let the exec go on.
    ExecLetGo,
    /// A monitor at the new program's stop, before it has written anything.
    ExecStopped,
    /// A monitor that has put the shim in, before it detaches.
    ExecPutIn,
    /// An experiment's conductor that has let a clock run, before its tasks.
    SliceBegun,
    /// The same, when the tasks run.
    SliceRunning,
    /// The same, when it has stopped them.
    SliceStopped,
}

/// Where the words of the points lie in a clock's file, in the order of [`Failpoint::ALL`]: four bytes each.
#[cfg(all(feature = "failpoints", not(loom)))]
pub const FAILPOINTS_OFFSET: usize =
    crate::file::REGISTRY_OFFSET + core::mem::offset_of!(Registry, failpoints);

/// The state of each point, in shared memory.
#[cfg(all(feature = "failpoints", not(loom)))]
#[repr(C)]
pub struct Failpoints([core::sync::atomic::AtomicU32; Failpoint::ALL.len()]);

#[cfg(all(feature = "failpoints", not(loom)))]
mod state {
    /// Threads go through.
    pub const OFF: u32 = 0;
    /// The next thread to arrive stops.
    pub const ARMED: u32 = 1;
    /// A thread has stopped here, until the test stores [`OFF`].
    pub const STOPPED: u32 = 2;
}

/// Stops the thread here, if a test wants that.
#[cfg(all(feature = "failpoints", not(loom)))]
#[inline(never)]
pub fn failpoint(registry: &Registry, point: Failpoint) {
    use core::sync::atomic::Ordering::SeqCst;
    let word = &registry.failpoints.0[point as usize];
    if word.load(SeqCst) == state::OFF {
        return;
    }
    if word.compare_exchange(state::ARMED, state::STOPPED, SeqCst, SeqCst).is_ok() {
        while word.load(SeqCst) == state::STOPPED {
            core::hint::spin_loop();
        }
    }
}

/// Whether points are there at all.
pub const FAILPOINTS: bool = cfg!(all(feature = "failpoints", not(loom)));

/// Has the thread die here, if the model wants that.
#[cfg(loom)]
pub fn failpoint(registry: &Registry, point: Failpoint) {
    if *registry.dies_at.lock().unwrap() == Some(point) {
        std::panic::resume_unwind(std::boxed::Box::new(point));
    }
}

/// Nothing, in a release.
#[cfg(not(any(feature = "failpoints", loom)))]
#[inline(always)]
pub fn failpoint(_: &Registry, _: Failpoint) {}
