//! Conditions under which a call is trapped.

/// The arguments that decide whether a call is trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Always.
    Always,
    /// Argument `.0` is not null.
    Given(u8),
    /// Either argument is not null.
    EitherGiven(u8, u8),
    /// Argument `.0`, an int of milliseconds, is above 0.
    Positive(u8),
    /// Argument `.0`, an int of milliseconds, is above 0, or argument `.1` is not null.
    PositiveOrGiven(u8, u8),
    /// Both arguments are zero.
    NeitherGiven(u8, u8),
    /// Argument `.0` is a command of msgctl, shmctl or semctl that returns times.
    IpcTimes(u8),
    /// The futex operation waits, and has a timeout.
    FutexWait,
    /// The call sets a signal's action, or reads that of a signal that the shim handles itself.
    SignalAction,
    /// The option is one of SOL_SOCKET that concerns time.
    SocketOption,
    /// The option is SO_RCVTIMEO or SO_SNDTIMEO.
    SocketTimeout,
    /// clone begins a process on a stack that the program has chosen.
    ProcessOnStack,
    /// prctl(PR_SET_SECCOMP).
    SetSeccomp,
    /// unshare of the time namespace.
    NewTimeNamespace,
    /// ptrace makes a tracer: PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE.
    BecomesTracer,
    /// From the image the call goes to the monitor, from elsewhere to the trap handler.
    Exec,
    /// The call always goes to the monitor.
    Monitor,
    /// The call fails with ENOSYS.
    Refused,
}

/// The programs in which a call is trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// Every program.
    Everywhere,
    /// Unless CPU clocks are real.
    CpuTimes,
    /// Unless file times are real.
    FileTimes,
    /// Where the clock skips idle time and counts tasks.
    CountedTasks,
    /// Where the sends of containers are ordered by virtual time.
    OrderedSends,
    /// In a process one of whose sockets has timestamps.
    Timestamps,
    /// In a process one of whose sockets has a timeout.
    SocketTimeouts,
    /// In a process one of whose descriptors has a content that depends on the clock.
    VirtualReads,
    /// In a process one of whose descriptors stands for a file of /proc.
    Rewinds,
    /// In a private node of a network.
    PrivateNodes,
}
