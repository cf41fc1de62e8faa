//! The table: each system call that has to do with time, waiting, or signals.

use crate::call::Form::{Millis, Timespec, Timeval};
use crate::call::TimeoutClock::{ByArguments, Realtime, Relative};
use crate::call::{Restart, Syscall, WaitsFor};
use crate::handler::Handler;
use crate::numbers::{Sysno, NUMBERS};
use crate::when::When::{
    Always, BecomesTracer, EitherGiven, Exec, FutexWait, Given, IpcTimes, Monitor, NeitherGiven,
    NewTimeNamespace, Positive, PositiveOrGiven, ProcessOnStack, Refused, SetSeccomp, SignalAction,
    SocketOption, SocketTimeout,
};
use crate::when::Where::{
    CountedTasks, CpuTimes, Everywhere, FileTimes, OrderedSends, PrivateNodes, Rewinds,
    SocketTimeouts, Timestamps, VirtualReads,
};

/// Number of a system call that does not exist: the shim asks the monitor for something.
pub const ASK_MONITOR: Sysno = Sysno::new(0x4c5a);

/// The rows. Calls without one have no time in them.
pub const TABLE: &[Syscall] = &[
    // Trapped in every program; the most frequent first, for the filter looks in this order.
    call(Sysno::futex)
        .trapped(&[(Everywhere, FutexWait)], Handler::Futex)
        .timeout(3, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::epoll_wait)
        .trapped(&[(Everywhere, Positive(3))], Handler::EpollWait)
        .timeout(3, Millis, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::epoll_pwait)
        .trapped(&[(Everywhere, PositiveOrGiven(3, 4))], Handler::EpollPwait)
        .timeout(3, Millis, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(Sysno::poll)
        .trapped(&[(Everywhere, Positive(2))], Handler::Poll)
        .timeout(2, Millis, Relative)
        .waits_for(WaitsFor::Polled)
        .restarts(Restart::RestartBlock)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::ppoll)
        .trapped(&[(Everywhere, EitherGiven(2, 3))], Handler::Ppoll)
        .timeout(2, Timespec, Relative)
        .waits_for(WaitsFor::Polled)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(Sysno::select)
        .trapped(&[(Everywhere, Given(4))], Handler::Select)
        .timeout(4, Timeval, Relative)
        .waits_for(WaitsFor::Selected)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it", "waits/test_waits.py"),
    call(Sysno::pselect6)
        .trapped(&[(Everywhere, EitherGiven(4, 5))], Handler::Pselect)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Selected)
        .restarts(Restart::NoHandler)
        .means("timeout and what is left of it; the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(Sysno::epoll_pwait2)
        .trapped(&[(Everywhere, EitherGiven(3, 4))], Handler::EpollPwait2)
        .timeout(3, Timespec, Relative)
        .waits_for(WaitsFor::EpollSet)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_waits.py"),
    call(Sysno::nanosleep)
        .trapped(&[(Everywhere, Always)], Handler::Nanosleep)
        .timeout(0, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("length, and what is left of it", "waits/test_waits.py"),
    call(Sysno::clock_nanosleep)
        .trapped(&[(Everywhere, Always)], Handler::ClockNanosleep)
        .timeout(2, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::RestartBlock)
        .means("length or deadline, and what is left of it", "waits/test_waits.py"),
    call(Sysno::clock_gettime)
        .trapped(&[(Everywhere, Always)], Handler::ClockGettime)
        .means("result; libc and Go read it without a system call", "clock_reads/test_clock_reads.py"),
    call(Sysno::gettimeofday)
        .trapped(&[(Everywhere, Always)], Handler::Gettimeofday)
        .means("result; libc reads it without a system call", "clock_reads/test_clock_reads.py"),
    call(Sysno::time)
        .trapped(&[(Everywhere, Always)], Handler::Time)
        .means("result; libc reads it without a system call", "clock_reads/test_clock_reads.py"),
    call(Sysno::rt_sigprocmask)
        .trapped(&[(Everywhere, Always)], Handler::SigProcMask)
        .means("SIGSYS and signal 64 stay open, and read back as the program set them", "waits/test_signals.py"),
    call(Sysno::rt_sigaction)
        .trapped(&[(Everywhere, SignalAction)], Handler::SigAction)
        .means("SIGSYS and signal 64 keep their handlers, and read back as the program set them", "waits/test_signals.py"),
    call(Sysno::rt_sigsuspend)
        .trapped(&[(Everywhere, Always)], Handler::SigSuspend)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler)
        .means("the mask leaves SIGSYS and signal 64 open", "waits/test_signals.py"),
    call(Sysno::rt_sigtimedwait)
        .trapped(&[(Everywhere, Always)], Handler::SigTimedWait)
        .timeout(2, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::sigaltstack)
        .trapped(&[(Everywhere, Always)], Handler::SigAltStack)
        .means("small stacks are replaced by larger ones", "faults/test_stacks.py"),
    call(Sysno::signalfd)
        .trapped(&[(Everywhere, Always)], Handler::SignalFd)
        .means("SIGSYS and signal 64 are not read", "pitfalls/test_pitfalls.py"),
    call(Sysno::signalfd4)
        .trapped(&[(Everywhere, Always)], Handler::SignalFd)
        .means("SIGSYS and signal 64 are not read", "pitfalls/test_pitfalls.py"),
    call(Sysno::futex_wait)
        .trapped(&[(Everywhere, Given(4))], Handler::FutexWait)
        .timeout(4, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::futex_waitv)
        .trapped(&[(Everywhere, Given(3))], Handler::FutexWaitv)
        .timeout(3, Timespec, ByArguments)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::semtimedop)
        .trapped(&[(Everywhere, Given(3))], Handler::SemTimedOp)
        .timeout(3, Timespec, Relative)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::mq_timedsend)
        .trapped(&[(Everywhere, Given(4))], Handler::MqTimed)
        .timeout(4, Timespec, Realtime)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::mq_timedreceive)
        .trapped(&[(Everywhere, Given(4))], Handler::MqTimed)
        .timeout(4, Timespec, Realtime)
        .waits_for(WaitsFor::Tasks)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::recvmmsg)
        .trapped(&[(Everywhere, Given(4)), (Timestamps, Always)], Handler::RecvMmsg)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Readable)
        .means("timeout; timestamps", "faces/test_sockets.py"),
    call(Sysno::io_getevents)
        .trapped(&[(Everywhere, Given(4))], Handler::IoGetevents)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Events)
        .restarts(Restart::Never)
        .means("timeout", "waits/test_waits.py"),
    call(Sysno::io_pgetevents)
        .trapped(&[(Everywhere, EitherGiven(4, 5))], Handler::IoGetevents)
        .timeout(4, Timespec, Relative)
        .waits_for(WaitsFor::Events)
        .restarts(Restart::Never)
        .means("timeout; the mask leaves SIGSYS and signal 64 open", "waits/test_waits.py"),
    call(Sysno::alarm)
        .trapped(&[(Everywhere, Always)], Handler::Alarm)
        .means("length, and what was left", "timers/test_timers.py"),
    call(Sysno::setitimer)
        .trapped(&[(Everywhere, Always)], Handler::Setitimer)
        .means("value and interval", "timers/test_timers.py"),
    call(Sysno::getitimer)
        .trapped(&[(Everywhere, Always)], Handler::Getitimer)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(Sysno::timer_create)
        .trapped(&[(Everywhere, Always)], Handler::TimerCreate)
        .means("the clock", "timers/test_timers.py"),
    call(Sysno::timer_settime)
        .trapped(&[(Everywhere, Always)], Handler::TimerSettime)
        .means("value and interval", "timers/test_timers.py"),
    call(Sysno::timer_gettime)
        .trapped(&[(Everywhere, Always)], Handler::TimerGettime)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(Sysno::timer_delete)
        .trapped(&[(Everywhere, Always)], Handler::TimerDelete)
        .means("the timer is forgotten", "timers/test_timers.py"),
    call(Sysno::timerfd_create)
        .trapped(&[(Everywhere, Always)], Handler::TimerfdCreate)
        .means("the clock", "timers/test_timers.py"),
    call(Sysno::timerfd_settime)
        .trapped(&[(Everywhere, Always)], Handler::TimerSettime)
        .means("value and interval", "timers/test_timers.py"),
    call(Sysno::timerfd_gettime)
        .trapped(&[(Everywhere, Always)], Handler::TimerGettime)
        .means("what is left, and the interval", "timers/test_timers.py"),
    call(Sysno::clock_settime)
        .trapped(&[(Everywhere, Always)], Handler::ClockSettime)
        .means("steps the container's wall clock", "waits/test_errors.py"),
    call(Sysno::settimeofday)
        .trapped(&[(Everywhere, Always)], Handler::Settimeofday)
        .means("steps the container's wall clock", "waits/test_errors.py"),
    call(Sysno::adjtimex)
        .trapped(&[(Everywhere, Always)], Handler::Adjtimex)
        .means("disciplines the container's clock", "clock_errors/test_adjtimex.py"),
    call(Sysno::clock_adjtime)
        .trapped(&[(Everywhere, Always)], Handler::ClockAdjtime)
        .means("disciplines the container's clock", "clock_errors/test_adjtimex.py"),
    call(Sysno::msgctl)
        .trapped(&[(Everywhere, IpcTimes(1))], Handler::IpcStat)
        .means("times of a queue", "faces/test_all_faces.py"),
    call(Sysno::shmctl)
        .trapped(&[(Everywhere, IpcTimes(1))], Handler::IpcStat)
        .means("times of a segment", "faces/test_all_faces.py"),
    call(Sysno::semctl)
        .trapped(&[(Everywhere, IpcTimes(2))], Handler::IpcStat)
        .means("times of a set", "faces/test_all_faces.py"),
    call(Sysno::setsockopt)
        .trapped(&[(Everywhere, SocketOption)], Handler::SetSocketOption)
        .means("SO_RCVTIMEO, SO_SNDTIMEO, timestamps", "faces/test_sockets.py"),
    call(Sysno::getsockopt)
        .trapped(&[(Everywhere, SocketTimeout)], Handler::GetSocketOption)
        .means("SO_RCVTIMEO, SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::sysinfo)
        .trapped(&[(Everywhere, Always)], Handler::Sysinfo)
        .means("uptime", "faces/test_uptime.py"),
    call(Sysno::times)
        .trapped(&[(Everywhere, Always)], Handler::Times)
        .means("result and CPU times", "faces/test_cpu_time.py"),
    call(Sysno::open)
        .trapped(&[(Everywhere, Always)], Handler::Open)
        .means("files of /proc that show time", "faces/test_proc_files.py"),
    call(Sysno::openat)
        .trapped(&[(Everywhere, Always)], Handler::Open)
        .means("files of /proc that show time", "faces/test_proc_files.py"),
    call(Sysno::execve)
        .trapped(&[(Everywhere, Exec)], Handler::Exec)
        .means("the monitor puts the shim into the new program", "process_tree/test_passing_through.py"),
    call(Sysno::execveat)
        .trapped(&[(Everywhere, Exec)], Handler::Exec)
        .means("the monitor puts the shim into the new program", "process_tree/test_passing_through.py"),
    call(Sysno::seccomp)
        .trapped(&[(Everywhere, Always)], Handler::Sandbox)
        .means("calls of the trap handler pass the program's own filter", "faces/test_rights_given_up.py"),
    call(Sysno::prctl)
        .trapped(&[(Everywhere, SetSeccomp)], Handler::Sandbox)
        .means("calls of the trap handler pass the program's own filter", "faces/test_rights_given_up.py"),
    call(Sysno::ptrace)
        .trapped(&[(Everywhere, BecomesTracer)], Handler::Trace)
        .means("refused: EPERM", "pitfalls/test_pitfalls.py"),
    call(Sysno::clone)
        .trapped(&[(Everywhere, ProcessOnStack), (CountedTasks, Always)], Handler::Clone)
        .means("a child on a small stack gets an alternate signal stack", "faults/test_stacks.py"),
    call(Sysno::unshare)
        .trapped(&[(Everywhere, NewTimeNamespace)], Handler::Unshare)
        .means("offsets of a time namespace, in virtual time", "faces/test_time_namespaces.py"),
    call(Sysno::setns)
        .trapped(&[(Everywhere, Always)], Handler::Setns)
        .means("offsets of a time namespace, in virtual time", "faces/test_time_namespaces.py"),
    Syscall::new(ASK_MONITOR, "(0x4c5a)")
        .filtered(&[(Everywhere, Monitor)])
        .means("no call of the kernel's: the shim asks the monitor", "waits/test_errors.py"),
    call(Sysno::clone3)
        .filtered(&[(Everywhere, Refused)])
        .means("refused: ENOSYS. Its flags lie in memory, where a filter does not see CLONE_CLEAR_SIGHAND; libc falls back to clone", "faces/test_all_faces.py"),
    call(Sysno::io_uring_setup)
        .filtered(&[(Everywhere, Refused)])
        .means("refused: ENOSYS. Its timeouts lie in shared memory; libraries fall back to epoll", "faces/test_io_uring.py"),

    // Trapped in some programs.
    call(Sysno::getrusage)
        .trapped(&[(CpuTimes, Always)], Handler::Getrusage)
        .means("CPU times", "faces/test_cpu_time.py"),
    call(Sysno::wait4)
        .trapped(&[(CpuTimes, Given(3))], Handler::Wait)
        .waits_for(WaitsFor::Tasks)
        .means("CPU times of the child", "faces/test_cpu_time.py"),
    call(Sysno::waitid)
        .trapped(&[(CpuTimes, Given(4))], Handler::Wait)
        .waits_for(WaitsFor::Tasks)
        .means("CPU times of the child", "faces/test_cpu_time.py"),
    call(Sysno::stat)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::fstat)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::lstat)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::newfstatat)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::statx)
        .trapped(&[(FileTimes, Always)], Handler::Stat)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::utime)
        .trapped(&[(FileTimes, Given(1))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::utimes)
        .trapped(&[(FileTimes, Given(1))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::futimesat)
        .trapped(&[(FileTimes, Given(2))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::utimensat)
        .trapped(&[(FileTimes, Given(2))], Handler::SetFileTimes)
        .means("times of the file", "faces/test_file_times.py"),
    call(Sysno::fork)
        .trapped(&[(CountedTasks, Always)], Handler::Clone)
        .means("the clock counts its tasks, where idle time is skipped", "skip_idle/test_skipping.py"),
    call(Sysno::vfork)
        .trapped(&[(CountedTasks, Always)], Handler::Clone)
        .means("the clock counts its tasks, where idle time is skipped", "skip_idle/test_skipping.py"),
    call(Sysno::write)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::writev)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::sendto)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::sendmsg)
        .trapped(&[(OrderedSends, Always), (SocketTimeouts, Always)], Handler::Send)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::sendmmsg)
        .trapped(&[(OrderedSends, Always)], Handler::SendMany)
        .waits_for(WaitsFor::Writable)
        .means("order of sends", "experiment"),
    call(Sysno::sendfile)
        .trapped(&[(OrderedSends, Always)], Handler::SendMany)
        .means("order of sends", "experiment"),
    call(Sysno::splice)
        .trapped(&[(OrderedSends, Always)], Handler::Splice)
        .waits_for(WaitsFor::Readable)
        .means("order of sends", "experiment"),
    call(Sysno::recvmsg)
        .trapped(&[(Timestamps, Always), (SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO; timestamps", "faces/test_sockets.py"),
    call(Sysno::recvfrom)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(Sysno::read)
        .trapped(&[(SocketTimeouts, Always), (VirtualReads, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO; ECANCELED of a timer descriptor; files of /proc", "faces/test_sockets.py"),
    call(Sysno::readv)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Readable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(Sysno::accept)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Connection)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(Sysno::accept4)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Connection)
        .restarts(Restart::UnlessTimeout)
        .means("SO_RCVTIMEO", "faces/test_sockets.py"),
    call(Sysno::connect)
        .trapped(&[(SocketTimeouts, Always)], Handler::Receive)
        .waits_for(WaitsFor::Writable)
        .restarts(Restart::UnlessTimeout)
        .means("SO_SNDTIMEO", "faces/test_sockets.py"),
    call(Sysno::lseek)
        .trapped(&[(Rewinds, NeitherGiven(1, 2))], Handler::Rewind)
        .means("files of /proc, read again from their start", "faces/test_proc_files.py"),
    call(Sysno::pread64)
        .trapped(&[(Rewinds, NeitherGiven(3, 3))], Handler::Rewind)
        .waits_for(WaitsFor::Readable)
        .means("files of /proc, read again from their start", "faces/test_proc_files.py"),
    call(Sysno::capset)
        .trapped(&[(PrivateNodes, Always)], Handler::Capset)
        .means("a process gets those of the capabilities it asks for that it may have", "networks/test_private_nodes.py"),

    // Not trapped; they may wait.
    call(Sysno::preadv)
        .waits_for(WaitsFor::Readable),
    call(Sysno::pwrite64)
        .waits_for(WaitsFor::Writable),
    call(Sysno::pause)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(Sysno::semop)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::Never),
    call(Sysno::msgrcv)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(Sysno::msgsnd)
        .waits_for(WaitsFor::Tasks)
        .restarts(Restart::NoHandler),
    call(Sysno::restart_syscall)
        .waits_for(WaitsFor::Tasks),
    call(Sysno::flock)
        .waits_for(WaitsFor::Tasks),
    call(Sysno::fcntl)
        .waits_for(WaitsFor::Tasks),
];

/// A row that has the name which the kernel gives the number.
const fn call(number: Sysno) -> Syscall {
    let mut i = 0;
    while NUMBERS[i].0.number() != number.number() {
        i += 1;
    }
    Syscall::new(number, NUMBERS[i].1)
}
