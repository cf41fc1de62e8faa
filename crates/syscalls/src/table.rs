//! The table: each system call that has to do with time, waiting, or signals.

use crate::call::Form::{Millis, Timespec, Timeval};
use crate::call::TimeoutClock::{ByArguments, Realtime, Relative};
use crate::call::{Restart, Syscall, WaitsFor};
use crate::handler::Handler;
use crate::numbers::{nr, NUMBERS};
use crate::when::When::{
    Always, BecomesTracer, EitherGiven, Exec, FutexWait, Given, IpcTimes, Monitor, NeitherGiven,
    NewTimeNamespace, Positive, PositiveOrGiven, ProcessOnStack, Refused, SetSeccomp, SignalAction,
    SocketOption, SocketTimeout,
};
use crate::when::Where::{
    CountedTasks, CpuTimes, Everywhere, FileTimes, OrderedSends, Rewinds, SocketTimeouts,
    Timestamps, VirtualReads,
};

/// Number of a system call that does not exist: the shim asks the monitor for something.
pub const ASK_MONITOR: u32 = 0x4c5a;

/// The rows. Calls without one have no time in them.
pub const TABLE: &[Syscall] = &[
    // Trapped in every program; the most frequent first, for the filter looks in this order.
    call(nr::FUTEX)
        .trapped(&[(Everywhere, FutexWait)], Handler::Futex)
        .timeout(3, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("timeout", "waits/test_waits.py"),
    call(nr::EPOLL_WAIT)
        .trapped(&[(Everywhere, Positive(3))], Handler::EpollWait)
        .timeout(3, Millis, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(nr::EPOLL_PWAIT)
        .trapped(&[(Everywhere, PositiveOrGiven(3, 4))], Handler::EpollPwait)
        .timeout(3, Millis, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(nr::POLL)
        .trapped(&[(Everywhere, Positive(2))], Handler::Poll)
        .timeout(2, Millis, Relative)
        .waits_for(WaitsFor::Polled)
        .restarts(Restart::RestartBlock)
        .means("timeout", "waits/test_waits.py"),
    call(nr::PPOLL)
        .trapped(&[(Everywhere, EitherGiven(2, 3))], Handler::Ppoll)
        .timeout(2, Timespec, Relative)
        .waits_for(WaitsFor::Polled)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(nr::SELECT)
        .trapped(&[(Everywhere, Given(4))], Handler::Select)
        .timeout(4, Timeval, Relative)
        .waits_for(WaitsFor::Selected)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it", "waits/test_waits.py"),
    call(nr::PSELECT6)
        .trapped(&[(Everywhere, EitherGiven(4, 5))], Handler::Pselect)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Selected)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(nr::EPOLL_PWAIT2)
        .trapped(&[(Everywhere, EitherGiven(3, 4))], Handler::EpollPwait2)
        .timeout(3, Timespec, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_waits.py"),
    call(nr::NANOSLEEP)
        .trapped(&[(Everywhere, Always)], Handler::Nanosleep)
        .timeout(0, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("length, and what is left of it", "waits/test_waits.py"),
    call(nr::CLOCK_NANOSLEEP)
        .trapped(&[(Everywhere, Always)], Handler::ClockNanosleep)
        .timeout(2, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("length or deadline, and what is left of it", "waits/test_waits.py"),
    call(nr::CLOCK_GETTIME)
        .trapped(&[(Everywhere, Always)], Handler::ClockGettime)
        .means("result; libc and Go read it without a system call", "clock_reads/test_clock_reads.py"),
    call(nr::GETTIMEOFDAY)
        .trapped(&[(Everywhere, Always)], Handler::Gettimeofday)
        .means("result; libc reads it without a system call", "clock_reads/test_clock_reads.py"),
    call(nr::TIME)
        .trapped(&[(Everywhere, Always)], Handler::Time)
        .means("result; libc reads it without a system call", "clock_reads/test_clock_reads.py"),
    call(nr::RT_SIGPROCMASK)
        .trapped(&[(Everywhere, Always)], Handler::SigProcMask)
        .means("SIGSYS and signal 64 stay open, and read back as the program set them", "waits/test_signals.py"),
    call(nr::RT_SIGACTION)
        .trapped(&[(Everywhere, SignalAction)], Handler::SigAction)
        .means("SIGSYS and signal 64 keep their handlers, and read back as the program set them", "waits/test_signals.py"),
    call(nr::RT_SIGSUSPEND)
        .trapped(&[(Everywhere, Always)], Handler::SigSuspend)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler)
        .means("the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(nr::RT_SIGTIMEDWAIT)
        .trapped(&[(Everywhere, Always)], Handler::SigTimedWait)
        .timeout(2, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(nr::SIGALTSTACK)
        .trapped(&[(Everywhere, Always)], Handler::SigAltStack)
        .means("small stacks are replaced by larger ones", "faults/test_stacks.py"),
    call(nr::SIGNALFD)
        .trapped(&[(Everywhere, Always)], Handler::SignalFd)
        .means("SIGSYS and signal 64 are not read", "pitfalls/test_pitfalls.py"),
    call(nr::SIGNALFD4)
        .trapped(&[(Everywhere, Always)], Handler::SignalFd)
        .means("SIGSYS and signal 64 are not read", "pitfalls/test_pitfalls.py"),
    call(nr::FUTEX_WAIT)
        .trapped(&[(Everywhere, Given(4))], Handler::FutexWait)
        .timeout(4, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(nr::FUTEX_WAITV)
        .trapped(&[(Everywhere, Given(3))], Handler::FutexWaitv)
        .timeout(3, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(nr::SEMTIMEDOP)
        .trapped(&[(Everywhere, Given(3))], Handler::SemTimedOp)
        .timeout(3, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(nr::MQ_TIMEDSEND)
        .trapped(&[(Everywhere, Given(4))], Handler::MqTimed)
        .timeout(4, Timespec, Realtime)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(nr::MQ_TIMEDRECEIVE)
        .trapped(&[(Everywhere, Given(4))], Handler::MqTimed)
        .timeout(4, Timespec, Realtime)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(nr::RECVMMSG)
        .trapped(&[(Everywhere, Given(4)), (Timestamps, Always)], Handler::RecvMmsg)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Readable)
        .means("timeout; timestamps", "faces/test_sockets.py"),
    call(nr::IO_GETEVENTS)
        .trapped(&[(Everywhere, Given(4))], Handler::IoGetevents)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Events)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(nr::IO_PGETEVENTS)
        .trapped(&[(Everywhere, EitherGiven(4, 5))], Handler::IoGetevents)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Events)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_waits.py"),
    call(nr::ALARM)
        .trapped(&[(Everywhere, Always)], Handler::Alarm)
        .means("length, and what was left", "timers/test_timers.py"),
    call(nr::SETITIMER)
        .trapped(&[(Everywhere, Always)], Handler::Setitimer)
        .means("value and interval", "timers/test_timers.py"),
    call(nr::GETITIMER)
        .trapped(&[(Everywhere, Always)], Handler::Getitimer)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(nr::TIMER_CREATE)
        .trapped(&[(Everywhere, Always)], Handler::TimerCreate)
        .means("the clock", "timers/test_timers.py"),
    call(nr::TIMER_SETTIME)
        .trapped(&[(Everywhere, Always)], Handler::TimerSettime)
        .means("value and interval", "timers/test_timers.py"),
    call(nr::TIMER_GETTIME)
        .trapped(&[(Everywhere, Always)], Handler::TimerGettime)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(nr::TIMER_DELETE)
        .trapped(&[(Everywhere, Always)], Handler::TimerDelete)
        .means("the timer is forgotten", "timers/test_timers.py"),
    call(nr::TIMERFD_CREATE)
        .trapped(&[(Everywhere, Always)], Handler::TimerfdCreate)
        .means("the clock", "timers/test_timers.py"),
    call(nr::TIMERFD_SETTIME)
        .trapped(&[(Everywhere, Always)], Handler::TimerSettime)
        .means("value and interval", "timers/test_timers.py"),
    call(nr::TIMERFD_GETTIME)
        .trapped(&[(Everywhere, Always)], Handler::TimerGettime)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(nr::CLOCK_SETTIME)
        .trapped(&[(Everywhere, Always)], Handler::ClockSettime)
        .means("steps the container's wall clock", "waits/test_errors.py"),
    call(nr::SETTIMEOFDAY)
        .trapped(&[(Everywhere, Always)], Handler::Settimeofday)
        .means("steps the container's wall clock", "waits/test_errors.py"),
    call(nr::ADJTIMEX)
        .trapped(&[(Everywhere, Always)], Handler::Adjtimex)
        .means("time and state; changes are refused but for a step", "waits/test_errors.py"),
    call(nr::CLOCK_ADJTIME)
        .trapped(&[(Everywhere, Always)], Handler::ClockAdjtime)
        .means("time and state; changes are refused but for a step", "waits/test_errors.py"),
    call(nr::MSGCTL)
        .trapped(&[(Everywhere, IpcTimes(1))], Handler::IpcStat)
        .means("times of a queue", "faces/test_all_faces.py"),
    call(nr::SHMCTL)
        .trapped(&[(Everywhere, IpcTimes(1))], Handler::IpcStat)
        .means("times of a segment", "faces/test_all_faces.py"),
    call(nr::SEMCTL)
        .trapped(&[(Everywhere, IpcTimes(2))], Handler::IpcStat)
        .means("times of a set", "faces/test_all_faces.py"),
    call(nr::SETSOCKOPT)
        .trapped(&[(Everywhere, SocketOption)], Handler::SetSocketOption)
        .means("SO_RCVTIMEO, SO_SNDTIMEO, timestamps", "faces/test_sockets.py"),
    call(nr::GETSOCKOPT)
        .trapped(&[(Everywhere, SocketTimeout)], Handler::GetSocketOption)
        .means("SO_RCVTIMEO, SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::SYSINFO)
        .trapped(&[(Everywhere, Always)], Handler::Sysinfo)
        .means("uptime", "faces/test_uptime.py"),
    call(nr::TIMES)
        .trapped(&[(Everywhere, Always)], Handler::Times)
        .means("result and CPU times", "faces/test_cpu_time.py"),
    call(nr::OPEN)
        .trapped(&[(Everywhere, Always)], Handler::Open)
        .means("files of /proc that show time", "faces/test_proc_files.py"),
    call(nr::OPENAT)
        .trapped(&[(Everywhere, Always)], Handler::Open)
        .means("files of /proc that show time", "faces/test_proc_files.py"),
    call(nr::EXECVE)
        .trapped(&[(Everywhere, Exec)], Handler::Exec)
        .means("the monitor puts the shim into the new program", "process_tree/test_passing_through.py"),
    call(nr::EXECVEAT)
        .trapped(&[(Everywhere, Exec)], Handler::Exec)
        .means("the monitor puts the shim into the new program", "process_tree/test_passing_through.py"),
    call(nr::SECCOMP)
        .trapped(&[(Everywhere, Always)], Handler::Sandbox)
        .means("calls of the trap handler pass the program's own filter", "faces/test_rights_given_up.py"),
    call(nr::PRCTL)
        .trapped(&[(Everywhere, SetSeccomp)], Handler::Sandbox)
        .means("calls of the trap handler pass the program's own filter", "faces/test_rights_given_up.py"),
    call(nr::PTRACE)
        .trapped(&[(Everywhere, BecomesTracer)], Handler::Trace)
        .means("refused: EPERM", "pitfalls/test_pitfalls.py"),
    call(nr::CLONE)
        .trapped(&[(Everywhere, ProcessOnStack), (CountedTasks, Always)], Handler::Clone)
        .means("a child on a small stack gets an alternate signal stack", "faults/test_stacks.py"),
    call(nr::UNSHARE)
        .trapped(&[(Everywhere, NewTimeNamespace)], Handler::Unshare)
        .means("offsets of a time namespace, in virtual time", "faces/test_time_namespaces.py"),
    call(nr::SETNS)
        .trapped(&[(Everywhere, Always)], Handler::Setns)
        .means("offsets of a time namespace, in virtual time", "faces/test_time_namespaces.py"),
    Syscall::new(ASK_MONITOR, "(0x4c5a)")
        .filtered(&[(Everywhere, Monitor)])
        .means("no call of the kernel's: the shim asks the monitor", "waits/test_errors.py"),
    call(nr::CLONE3)
        .filtered(&[(Everywhere, Refused)])
        .means("refused: ENOSYS. Its flags lie in memory, where a filter does not see CLONE_CLEAR_SIGHAND; libc falls back to clone", "process_tree/test_passing_through.py"),
    call(nr::IO_URING_SETUP)
        .filtered(&[(Everywhere, Refused)])
        .means("refused: ENOSYS. Its timeouts lie in shared memory; libraries fall back to epoll", "faces/test_io_uring.py"),

    // Trapped in some programs.
    call(nr::GETRUSAGE)
        .trapped(&[(CpuTimes, Always)], Handler::Getrusage)
        .means("CPU times", "faces/test_cpu_time.py"),
    call(nr::WAIT4)
        .trapped(&[(CpuTimes, Given(3))], Handler::Wait)
        .waits_for(WaitsFor::Tasks)
        .means("CPU times of the child", "faces/test_cpu_time.py"),
    call(nr::WAITID)
        .trapped(&[(CpuTimes, Given(4))], Handler::Wait)
        .waits_for(WaitsFor::Tasks)
        .means("CPU times of the child", "faces/test_cpu_time.py"),
    call(nr::STAT)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::FSTAT)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::LSTAT)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::NEWFSTATAT)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::STATX)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::UTIME)
        .trapped(&[(FileTimes, Given(1))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::UTIMES)
        .trapped(&[(FileTimes, Given(1))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::FUTIMESAT)
        .trapped(&[(FileTimes, Given(2))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::UTIMENSAT)
        .trapped(&[(FileTimes, Given(2))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(nr::FORK)
        .trapped(&[(CountedTasks, Always)], Handler::Clone)
        .means("the clock counts its tasks, where idle time is skipped", "skip_idle/test_skipping.py"),
    call(nr::VFORK)
        .trapped(&[(CountedTasks, Always)], Handler::Clone)
        .means("the clock counts its tasks, where idle time is skipped", "skip_idle/test_skipping.py"),
    call(nr::WRITE)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::WRITEV)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::SENDTO)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::SENDMSG)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::SENDMMSG)
        .trapped(&[(OrderedSends, Always)], Handler::SendMany)
        .waits_for(WaitsFor::Writable)
        .means("order of sends", "experiment"),
    call(nr::SENDFILE)
        .trapped(&[(OrderedSends, Always)], Handler::SendMany)
        .means("order of sends", "experiment"),
    call(nr::SPLICE)
        .trapped(&[(OrderedSends, Always)], Handler::Splice)
        .waits_for(WaitsFor::Readable)
        .means("order of sends", "experiment"),
    call(nr::RECVMSG)
        .trapped(&[(Timestamps, Always), (SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO; timestamps", "faces/test_sockets.py"),
    call(nr::RECVFROM)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(nr::READ)
        .trapped(&[(SocketTimeouts, Always), (VirtualReads, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO; ECANCELED of a timer descriptor; files of /proc", "faces/test_sockets.py"),
    call(nr::READV)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(nr::ACCEPT)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Connection)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(nr::ACCEPT4)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Connection)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(nr::CONNECT)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(nr::LSEEK)
        .trapped(&[(Rewinds, NeitherGiven(1, 2))], Handler::Rewind)
        .means("files of /proc, read again from their start", "faces/test_proc_files.py"),
    call(nr::PREAD64)
        .trapped(&[(Rewinds, NeitherGiven(3, 3))], Handler::Rewind)
        .waits_for(WaitsFor::Readable)
        .means("files of /proc, read again from their start", "faces/test_proc_files.py"),

    // Not trapped; they may wait.
    call(nr::PREADV)
        .waits_for(WaitsFor::Readable),
    call(nr::PWRITE64)
        .waits_for(WaitsFor::Writable),
    call(nr::PAUSE)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(nr::SEMOP)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never),
    call(nr::MSGRCV)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(nr::MSGSND)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(nr::RESTART_SYSCALL)
        .waits_for(WaitsFor::Tasks),
    call(nr::FLOCK)
        .waits_for(WaitsFor::Tasks),
    call(nr::FCNTL)
        .waits_for(WaitsFor::Tasks),
];

/// A row that has the name which the kernel gives the number.
const fn call(number: u32) -> Syscall {
    let mut i = 0;
    while NUMBERS[i].0 != number {
        i += 1;
    }
    Syscall::new(number, NUMBERS[i].1)
}
