//! Metrics of the studies.

use crate::named::named;
use crate::study::Study;

/// A metric. It has the name of the papers if they name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Metric {
    /// A call of a function that does nothing: the cost of the harness itself.
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
    /// timer_create on CLOCK_MONOTONIC.
    TimerCreate,
    /// timer_settime, which arms the timer.
    TimerSettime,
    /// timer_getoverrun, which returns the number of expirations that no signal announced.
    TimerGetoverrun,
    /// timer_delete.
    TimerDelete,
    /// timerfd_create on CLOCK_MONOTONIC.
    TimerfdCreate,
    /// timerfd_settime, which arms the timer.
    TimerfdSettime,
    /// Reads of CLOCK_MONOTONIC in a row with hot caches, for `millis` of the settings: 3 s as published.
    HotMonotonic,
    /// Reads of CLOCK_BOOTTIME in a row, likewise.
    HotBoottime,
    /// One read of CLOCK_MONOTONIC after a flush of all its pages from the caches.
    ColdMonotonic,
    /// A read of the clock of the precise timers (`lorentz_timers`).
    CostMoment,
    /// A read of CLOCK_MONOTONIC.
    CostClockGettime,
    /// Lateness of the end of a sleep by the precise timers.
    MissSleep,
    /// Lateness of the end of `usleep`.
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

/// Unit of a metric's amount.
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
    /// Returns the study that measures the metric.
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

    /// Returns the unit of the metric's amount.
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
