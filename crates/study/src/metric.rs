//! What is measured.

use crate::named::named;
use crate::Study;

/// One thing that is measured, by its name in the papers where it has one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// A call of a function that does nothing: what the harness itself costs.
    Harness,
    /// The resolution of CLOCK_MONOTONIC, by a system call.
    ClockGetres,
    /// CLOCK_MONOTONIC, by a system call.
    ClockGettimeMonotonic,
    /// CLOCK_MONOTONIC, by the vDSO.
    VdsoClockGettimeMonotonic,
    /// CLOCK_BOOTTIME, by a system call.
    ClockGettimeBoottime,
    /// CLOCK_BOOTTIME, by the vDSO.
    VdsoClockGettimeBoottime,
    /// CLOCK_REALTIME, by a system call.
    Gettimeofday,
    /// CLOCK_REALTIME, by the vDSO.
    VdsoGettimeofday,
    /// A sleep of 100 ms.
    Nanosleep,
    /// A sleep of 100 ms on CLOCK_MONOTONIC.
    ClockNanosleep,
    /// A timer of the process on CLOCK_MONOTONIC is made.
    TimerCreate,
    /// It is armed.
    TimerSettime,
    /// How often it ran out unseen.
    TimerGetoverrun,
    /// It is deleted.
    TimerDelete,
    /// A timer behind a file descriptor on CLOCK_MONOTONIC is made.
    TimerfdCreate,
    /// It is armed.
    TimerfdSettime,
    /// Reads of CLOCK_MONOTONIC in a row for 3 s, caches hot.
    HotMonotonic,
    /// The same of CLOCK_BOOTTIME.
    HotBoottime,
    /// One read of CLOCK_MONOTONIC after all pages it needs were flushed from the caches.
    ColdMonotonic,
    /// A read of the precise timers' clock.
    CostMoment,
    /// A read of CLOCK_MONOTONIC.
    CostClockGettime,
    /// How late a sleep of the precise timers ends.
    MissSleep,
    /// How late `usleep` ends.
    MissUsleep,
}

named!(Metric, "metric", {
    Harness = "harness",
    ClockGetres = "clock_getres",
    ClockGettimeMonotonic = "clock_gettime_monotonic",
    VdsoClockGettimeMonotonic = "vdso_clock_gettime_monotonic",
    ClockGettimeBoottime = "clock_gettime_boottime",
    VdsoClockGettimeBoottime = "vdso_clock_gettime_boottime",
    Gettimeofday = "gettimeofday",
    VdsoGettimeofday = "vdso_gettimeofday",
    Nanosleep = "nanosleep",
    ClockNanosleep = "clock_nanosleep",
    TimerCreate = "timer_create",
    TimerSettime = "timer_settime",
    TimerGetoverrun = "timer_getoverrun",
    TimerDelete = "timer_delete",
    TimerfdCreate = "timerfd_create",
    TimerfdSettime = "timerfd_settime",
    HotMonotonic = "hot_monotonic",
    HotBoottime = "hot_boottime",
    ColdMonotonic = "cold_monotonic",
    CostMoment = "cost_moment",
    CostClockGettime = "cost_clock_gettime",
    MissSleep = "miss_sleep",
    MissUsleep = "miss_usleep",
});

/// What a metric's amount counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Calls whose mean is one sample.
    Calls,
    /// Sleeps whose mean is one sample.
    Sleeps,
    /// Milliseconds that one sample lasts.
    Millis,
    /// Samples of one record.
    Samples,
}

impl Metric {
    /// Of which study it is.
    pub fn study(self) -> Study {
        match self {
            Self::HotMonotonic | Self::HotBoottime => Study::Hot,
            Self::ColdMonotonic => Study::Cold,
            Self::CostMoment | Self::CostClockGettime | Self::MissSleep | Self::MissUsleep => {
                Study::Timers
            }
            _ => Study::Clocks,
        }
    }

    /// What its amount counts.
    pub fn unit(self) -> Unit {
        match self {
            Self::Nanosleep | Self::ClockNanosleep => Unit::Sleeps,
            Self::HotMonotonic | Self::HotBoottime => Unit::Millis,
            Self::ColdMonotonic
            | Self::CostMoment
            | Self::CostClockGettime
            | Self::MissSleep
            | Self::MissUsleep => Unit::Samples,
            _ => Unit::Calls,
        }
    }
}
