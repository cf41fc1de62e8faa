//! The parts of the shim that carry out trapped calls.

/// A handler of the shim: `lorentz_shim::trap` has one arm for each. A row of the table without a handler for a trap does not
/// compile, nor does a variant without an arm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Handler {
    ClockGettime,
    Gettimeofday,
    Time,
    ClockSettime,
    Settimeofday,
    Adjtimex,
    ClockAdjtime,
    Nanosleep,
    ClockNanosleep,
    Poll,
    Ppoll,
    Select,
    Pselect,
    EpollWait,
    EpollPwait,
    EpollPwait2,
    Futex,
    FutexWait,
    FutexWaitv,
    SigTimedWait,
    SemTimedOp,
    MqTimed,
    RecvMmsg,
    IoGetevents,
    IpcStat,
    Rewind,
    Alarm,
    Setitimer,
    Getitimer,
    TimerCreate,
    TimerSettime,
    TimerGettime,
    TimerDelete,
    TimerfdCreate,
    SetSocketOption,
    GetSocketOption,
    Receive,
    Send,
    SendMany,
    Splice,
    Sysinfo,
    Times,
    Getrusage,
    Wait,
    Stat,
    SetFileTimes,
    Open,
    SigProcMask,
    SigAction,
    SigSuspend,
    SigAltStack,
    SignalFd,
    Exec,
    Sandbox,
    Trace,
    Unshare,
    Setns,
    Clone,
    Capset,
}

impl Handler {
    /// True if the shim carries such a call out at a rewritten call site, without a signal, where the arguments allow it.
    pub const fn works_at_call_sites(self) -> bool {
        matches!(
            self,
            Handler::ClockGettime
                | Handler::Gettimeofday
                | Handler::Time
                | Handler::Stat
                | Handler::Open
                | Handler::SigAction
                | Handler::SigProcMask
                | Handler::Poll
                | Handler::EpollWait
                | Handler::EpollPwait
                | Handler::Futex
        )
    }
}
