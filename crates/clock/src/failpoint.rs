//! Failpoints: places at which a test stops a thread, and then kills it or lets another thread overtake it.
//!
//! Failpoints exist only with the feature `failpoints`, which no release has. A test maps the clock's file, arms a point, and
//! waits until a thread has arrived there. The test then does something and lets the thread go on: see
//! `tests/framework/failpoints.py`.

macro_rules! failpoints {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// The places at which a thread can be stopped.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Failpoint {
            $($(#[doc = $doc])* $name,)*
        }

        impl Failpoint {
            /// All failpoints with their names. The order is that of their words in the clock's file.
            pub const ALL: &'static [(Failpoint, &'static str)] =
                &[$((Failpoint::$name, stringify!($name)),)*];
        }
    };
}

failpoints! {
    /// A writer has not written anything yet.
    BeforePiece,
    /// A writer has written the piece and the view.
    BeforeOpen,
    /// A writer is about to make the store of the version, which publishes the change.
    BeforeVersion,
    /// A writer has just made the store of the version.
    AfterVersion,
    /// A reader is about to decide when a change begins.
    ReaderDecides,
    /// A writer has decided the start.
    AfterDecision,
    /// A writer has written the start into the piece.
    BeforeFastPath,
    /// A controller has published a change, and has notified nobody.
    BeforeNotify,
    /// A controller has notified everybody, and has not stored `notified`.
    AfterNotify,
    /// A controller has begun to hold timers back, and has notified nobody.
    HoldBegun,
    /// All timers follow a controller's hold, and the controller has not published the change.
    HoldFollowed,
    /// Some timers do not follow a controller's hold yet. The controller gives their processes more time.
    HoldExtended,
    /// A controller has made the clock believe leaps, and has not turned skipping on.
    LeapsEnabled,
    /// A change has begun that was to come. A controller is about to refresh the fast path.
    BeforeRefresh,
    /// A leap over idle time has been added to the sum, and is not in the log.
    LeapBeforeLog,
    /// A leap over idle time has been added to the sum, and half of its log entry is written.
    LeapInLog,
    /// A skipper has leapt, and has notified nobody.
    LeapBeforeNotify,
    /// A skipper has half marked a thread as the sole thread.
    MarkHalf,
    /// A wait has claimed a slot in the registry, and has not stated its deadline.
    WaitClaimed,
    /// A wait has stated its deadline, and has not blocked.
    WaitPublished,
    /// A wait has looked for pending signals. The program's signal mask is not in force yet.
    BeforeOpenGate,
    /// A wait is over, and still has its slot.
    WaitLeaving,
    /// A thread has the right to set a timer.
    TimerHeld,
    /// A thread has asked the kernel when a timer goes off next. It has not asked which expiries the program has yet to receive.
    TimerQueried,
    /// A thread is about to set the kernel's timer.
    BeforeTimer,
    /// A thread has set the kernel's timer, and has not updated the registry.
    TimerArmed,
    /// A thread has the right to use the remembered CPU times.
    CpuTimeHeld,
    /// A thread has half entered a descriptor into the fd table.
    FdEntryHalf,
    /// A thread is about to add a seccomp filter.
    BeforeFilter,
    /// A thread has added a seccomp filter, and has not recorded that.
    AfterFilter,
    /// A thread knows that it can rewrite a call site, and has not begun.
    SiteKnown,
    /// A thread has made a page of the program's code writable, and has not changed a call site there.
    CodeWritable,
    /// A monitor has received the notification of an exec, and has not seized the thread.
    ExecNotified,
    /// A monitor has found that another process traces a thread at its exec, and has not looked which.
    ExecTraced,
    /// A monitor has seized a thread at its exec.
    ExecSeized,
    /// A monitor has let the exec go on.
    ExecLetGo,
    /// A monitor sees the new program stopped, and has not written anything into it.
    ExecStopped,
    /// A monitor has put the shim in, and has not detached.
    ExecPutIn,
    /// A monitor has seized a thread of a process that it is about to adopt, and has not interrupted it.
    AdoptSeized,
    /// A monitor has stopped a thread of a process that it is about to adopt.
    AdoptStopped,
    /// A monitor has sent a thread the signal to install a filter with a listener.
    AdoptSignalled,
    /// A process has a filter with a listener, and the monitor has not duplicated the listener.
    AdoptListening,
    /// A monitor has duplicated the listener, and the process has not closed it.
    AdoptFetched,
    /// A monitor has adopted all processes of a container, and has not recorded that.
    AdoptUnrecorded,
    /// An experiment's scheduler has let a clock run, and its tasks do not run yet.
    SliceBegun,
    /// An experiment's scheduler has let a clock and its tasks run.
    SliceRunning,
    /// An experiment's scheduler has found all tasks of a clock asleep, and looks again.
    SliceLooked,
    /// An experiment's scheduler has stopped a clock's tasks.
    SliceStopped,
}

/// The state of each failpoint, in shared memory.
#[cfg(all(feature = "failpoints", not(loom)))]
#[repr(C)]
pub struct Failpoints([core::sync::atomic::AtomicU32; Failpoint::ALL.len()]);

/// The failpoint at which a writer dies in the model.
#[cfg(loom)]
#[derive(Default)]
pub struct Failpoints {
    /// The model's choice.
    pub dies_at: std::sync::Mutex<Option<Failpoint>>,
}

/// No failpoints, and no memory for them.
#[cfg(not(any(feature = "failpoints", loom)))]
#[repr(C)]
pub struct Failpoints([u8; 0]);

impl AsRef<Failpoints> for Failpoints {
    fn as_ref(&self) -> &Failpoints {
        self
    }
}

#[cfg(all(feature = "failpoints", not(loom)))]
mod state {
    /// Threads pass without stopping.
    pub const OFF: u32 = 0;
    /// The next thread to arrive stops.
    pub const ARMED: u32 = 1;
    /// A thread has stopped here, and goes on when the test stores [`OFF`].
    pub const STOPPED: u32 = 2;
}

impl Failpoints {
    #[cfg(all(feature = "failpoints", not(loom)))]
    #[inline(never)]
    fn pass(&self, point: Failpoint) {
        use core::sync::atomic::Ordering::SeqCst;
        let word = &self.0[point as usize];
        if word.load(SeqCst) == state::OFF {
            return;
        }
        if word.compare_exchange(state::ARMED, state::STOPPED, SeqCst, SeqCst).is_ok() {
            while word.load(SeqCst) == state::STOPPED {
                core::hint::spin_loop();
            }
        }
    }

    #[cfg(loom)]
    fn pass(&self, point: Failpoint) {
        if *self.dies_at.lock().unwrap() == Some(point) {
            std::panic::resume_unwind(std::boxed::Box::new(point));
        }
    }

    #[cfg(not(any(feature = "failpoints", loom)))]
    #[inline(always)]
    fn pass(&self, _: Failpoint) {}
}

/// Whether this build has failpoints.
pub const FAILPOINTS: bool = cfg!(all(feature = "failpoints", not(loom)));

/// Stops the calling thread here while the test has armed `point`. In the model, ends the thread by a panic if the model chose
/// `point` for a writer to die at. In a build without failpoints, does nothing.
#[inline(always)]
pub fn failpoint(registry: &impl AsRef<Failpoints>, point: Failpoint) {
    registry.as_ref().pass(point);
}
