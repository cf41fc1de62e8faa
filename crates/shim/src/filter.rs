//! Which system calls are trapped, and the seccomp filter that says so.
//!
//! A number that is not in the table is allowed by its number alone, so that the kernel's bitmap answers without
//! running the filter. Where arguments decide, a call that carries no finite timeout is let through.

use crate::layout::{IMAGE, IMAGE_LEN};
use crate::sys::sig::{CLOCK_CHANGE, SIGSEGV, SIGSYS};
use crate::sys::Sysno;
use crate::user::NO_SEMAPHORE;
use lorentz_clock::Policy;
use lorentz_syscalls::{When, Where, TABLE};

pub use lorentz_syscalls::ASK_MONITOR;

/// SECCOMP_RET_DATA of our filter. It distinguishes our traps from those of the program's own filters.
pub const TRAP_DATA: u32 = 0x4c5a;
/// In the low half of the last argument of an exec: go to the monitor, also from outside the image.
pub const EXEC_MAGIC: u32 = 0x4c5a_4558;
/// In the high half: the clock-change signal is blocked for the exec alone, and not by the program.
pub const EXEC_CHANGE_SIGNAL_OPEN: u64 = 1 << 32;
/// Its first argument: a descriptor, while a running process is brought in.
pub const ASK_FOR_FILE: u64 = 0;
/// Its first argument: the wall clock is to be set, to the seconds and nanoseconds that follow.
pub const ASK_SET_WALL: u64 = 1;
/// Its first argument: the wall clock is to be stepped, by the seconds and nanoseconds that follow.
pub const ASK_STEP_WALL: u64 = 2;
/// Its first argument: which [`crate::call_sites::Shape`] the call site has that ends at the address that follows. The number of a
/// call that was made there comes last.
pub const ASK_CALL_SITE: u64 = 3;
/// Its first argument: adjtimex(2) is to be carried out on the struct timex at the address that follows.
pub const ASK_ADJTIME: u64 = 4;

/// First argument of seccomp(2): a filter is installed.
pub const SET_MODE_FILTER: u32 = 1;

/// Flags of seccomp(2).
pub mod flag {
    /// In all threads, or in none.
    pub const ALL_THREADS: u32 = 1;
    /// No mitigation of speculation.
    pub const SPEC_ALLOW: u32 = 1 << 2;
    /// With a listener.
    pub const NEW_LISTENER: u32 = 1 << 3;
    /// If the filter cannot be installed in all threads, the result is ESRCH, and not a thread id.
    pub const ALL_THREADS_ESRCH: u32 = 1 << 4;
    /// After the monitor has received a notification, only a fatal signal interrupts the call. Without this flag, Go's preemption
    /// signal would interrupt and repeat the call for ever.
    pub const WAIT_KILLABLE: u32 = 1 << 5;
    /// A filter with a listener.
    pub const LISTENING: u32 = SPEC_ALLOW | NEW_LISTENER | WAIT_KILLABLE;
    /// The same in a process that already runs.
    pub const LISTENING_LIVE: u32 = LISTENING | ALL_THREADS | ALL_THREADS_ESRCH;
}

/// The calls that are trapped in programs of a kind, the most frequent first.
pub fn calls(place: Where) -> impl Iterator<Item = (Sysno, When)> {
    TABLE.iter().flat_map(move |row| {
        let here = row.traps.iter().filter(move |trap| trap.0 == place);
        here.map(|trap| (row.number, trap.1))
    })
}

/// Calls that the shim traps in a process only once the process has asked for something that needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extra {
    /// Messages, when a socket has time stamps.
    Messages,
    /// Blocking socket calls, when a socket has a timeout.
    Sockets,
    /// read, when a descriptor's content depends on the clock.
    Reads,
    /// Going back to the start of a file, when one stands for a file of /proc.
    Rewinds,
    /// capset, in a private node of a network, from its first program on.
    Capabilities,
}

impl Extra {
    /// The bit of [`crate::layout::ProcessData::extra_filters`] that says that the filter is there.
    pub fn there(self) -> u32 {
        1 << self as u32
    }

    /// The calls that it concerns.
    pub fn calls(self) -> impl Iterator<Item = (Sysno, When)> {
        calls(match self {
            Extra::Messages => Where::Timestamps,
            Extra::Sockets => Where::SocketTimeouts,
            Extra::Reads => Where::VirtualReads,
            Extra::Rewinds => Where::Rewinds,
            Extra::Capabilities => Where::PrivateNodes,
        })
    }
}

/// One instruction of a classic BPF program (struct sock_filter).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

impl Instruction {
    /// As the kernel reads it.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&self.code.to_ne_bytes());
        bytes[2..4].copy_from_slice(&[self.if_true, self.if_false]);
        bytes[4..].copy_from_slice(&self.operand.to_ne_bytes());
        bytes
    }
}

/// Room for a program's filter.
pub const PROGRAM_LEN: usize = 1024;
/// Room for the filter of an [`Extra`], or what comes before a program's own: small, for it stands on a signal stack.
pub const EXTRA_LEN: usize = 96;

/// A filter of at most `N` instructions, ready for seccomp(2).
pub struct Program<const N: usize> {
    code: [Instruction; N],
    len: usize,
}

const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000 | TRAP_DATA;
const NOTIFY: u32 = 0x7fc0_0000;
const ENOSYS: u32 = 0x0005_0000 | 38;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const IP_LOW: u32 = 8;
const IP_HIGH: u32 = 12;
const fn arg_low(arg: u8) -> u32 {
    16 + 8 * arg as u32
}
const fn arg_high(arg: u8) -> u32 {
    arg_low(arg) + 4
}

impl Program<PROGRAM_LEN> {
    /// The filter of a program in virtual time.
    pub fn of_program(policy: Policy) -> Self {
        Self::of_running(policy, &[])
    }

    /// The filter of a program that ran before, and needs `extras` from the start.
    pub fn of_running(policy: Policy, extras: &[Extra]) -> Self {
        let mut program = Program::begin(ENOSYS);
        // Before the table: what they trap always, it traps at times.
        extras.iter().for_each(|extra| program.table(extra.calls()));
        if policy.counts_tasks {
            program.table(calls(Where::CountedTasks));
        }
        // Everyday programs make these most.
        if !policy.real_file_times {
            program.table(calls(Where::FileTimes));
        }
        program.table(calls(Where::Everywhere));
        if !policy.real_cpu_clocks {
            program.table(calls(Where::CpuTimes));
        }
        if policy.orders_sends {
            program.table(calls(Where::OrderedSends));
        }
        program.end()
    }
}

impl Program<EXTRA_LEN> {
    /// The filter of a process whose monitor has died: what goes to the monitor goes to the listener of this filter, because the
    /// kernel takes the newest filter of those with the same verdict. The filter before it decides everything else.
    pub fn of_adopted() -> Self {
        let to_monitor = |when: &When| matches!(when, When::Exec | When::Monitor);
        let mut program = Program::begin(ALLOW);
        program.table(calls(Where::Everywhere).filter(|(_, when)| to_monitor(when)));
        program.end()
    }

    /// The filter added for `extra`.
    pub fn of_extra(extra: Extra) -> Self {
        let mut program = Program::begin(ALLOW);
        program.table(extra.calls());
        program.end()
    }
}

impl<const N: usize> Program<N> {
    /// The instructions.
    pub fn code(&self) -> &[Instruction] {
        &self.code[..self.len]
    }

    /// The architecture, and numbers of the x32 ABI, come first.
    fn begin(other_architecture: u32) -> Self {
        const X86_64: u32 = 0xc000_003e;
        const X32: u32 = 0x4000_0000;
        let mut program = Program { code: [Instruction::default(); N], len: 0 };
        program.load(ARCHITECTURE);
        program.test(JUMP_EQUAL, X86_64, 1, 0);
        program.ret(other_architecture);
        program.load(NUMBER);
        program.test(JUMP_NOT_BELOW, X32, 0, 1);
        program.ret(other_architecture);
        program
    }

    fn end(mut self) -> Self {
        self.ret(ALLOW);
        self
    }

    fn table(&mut self, calls: impl Iterator<Item = (Sysno, When)>) {
        for (number, when) in calls {
            let test = self.len;
            self.test(JUMP_EQUAL, number.number(), 0, 0);
            self.when(when);
            // The block of a call ends in a return; other numbers skip it.
            self.code[test].if_false = (self.len - test - 1) as u8;
        }
    }

    /// The block of one call: allowed where the arguments say so, allowed from the image, else trapped.
    fn when(&mut self, when: When) {
        match when {
            When::Refused => return self.ret(ENOSYS),
            When::Monitor => return self.ret(NOTIFY),
            When::Exec => return self.exec(),
            When::Always => {}
            When::Given(arg) => self.allow_unless_given(&[arg]),
            When::EitherGiven(a, b) => self.allow_unless_given(&[a, b]),
            When::NeitherGiven(a, b) => self.allow_if_given(&[a, b]),
            When::IpcTimes(arg) => self.allow_unless_ipc_times(arg),
            When::Positive(arg) => self.allow_unless_positive(arg, &[]),
            When::PositiveOrGiven(arg, b) => self.allow_unless_positive(arg, &[b]),
            When::FutexWait => self.allow_unless_futex_wait(),
            When::SignalAction => {
                const OURS: [u32; 3] = [SIGSYS, CLOCK_CHANGE, SIGSEGV];
                self.load(arg_low(0));
                for (i, signal) in OURS.iter().enumerate() {
                    let behind_given = 5;
                    self.test(JUMP_EQUAL, *signal, (OURS.len() - 1 - i) as u8 + behind_given, 0);
                }
                self.allow_unless_given(&[1]);
            }
            // SO_RCVTIMEO, SO_SNDTIMEO old and new; SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING old and new.
            When::SocketOption => {
                self.allow_unless_option(&[20, 21, 66, 67, 29, 35, 37, 63, 64, 65])
            }
            When::SocketTimeout => self.allow_unless_option(&[20, 21, 66, 67]),
            When::BecomesTracer => {
                const REQUESTS: [u32; 3] = [0, 16, 0x4206];
                self.load(arg_low(0));
                for (i, request) in REQUESTS.iter().enumerate() {
                    self.test(JUMP_EQUAL, *request, (REQUESTS.len() - i) as u8, 0);
                }
                self.ret(ALLOW);
            }
            When::ProcessOnStack => {
                const CLONE_THREAD: u32 = 0x1_0000;
                self.load(arg_low(0));
                self.push(AND, 0, 0, CLONE_THREAD);
                self.test(JUMP_EQUAL, 0, 1, 0);
                self.ret(ALLOW);
                self.allow_unless_given(&[1]);
            }
            When::NewTimeNamespace => {
                const CLONE_NEWTIME: u32 = 0x80;
                self.load(arg_low(0));
                self.push(AND, 0, 0, CLONE_NEWTIME);
                self.test(JUMP_EQUAL, 0, 0, 1);
                self.ret(ALLOW);
            }
            When::SetSeccomp => {
                const PR_SET_SECCOMP: u32 = 22;
                self.load(arg_low(0));
                self.test(JUMP_EQUAL, PR_SET_SECCOMP, 1, 0);
                self.ret(ALLOW);
            }
        }
        self.if_from_image(ALLOW);
        self.ret(TRAP);
    }

    fn exec(&mut self) {
        self.if_from_image(NOTIFY);
        self.load(arg_low(5));
        self.test(JUMP_EQUAL, EXEC_MAGIC, 0, 1);
        self.ret(NOTIFY);
        self.ret(TRAP);
    }

    fn if_from_image(&mut self, action: u32) {
        self.load(IP_HIGH);
        self.test(JUMP_EQUAL, 0, 0, 4);
        self.load(IP_LOW);
        self.test(JUMP_NOT_BELOW, IMAGE as u32, 0, 2);
        self.test(JUMP_NOT_BELOW, (IMAGE + IMAGE_LEN) as u32, 1, 0);
        self.ret(action);
    }

    /// Allows the call when all of `args` are null.
    fn allow_unless_given(&mut self, args: &[u8]) {
        for (i, &arg) in args.iter().enumerate() {
            let behind = 4 * (args.len() - 1 - i) as u8 + 1;
            self.load(arg_low(arg));
            self.test(JUMP_EQUAL, 0, 0, behind + 2);
            self.load(arg_high(arg));
            self.test(JUMP_EQUAL, 0, 0, behind);
        }
        self.ret(ALLOW);
    }

    /// Allows the call when one of `args` is not null.
    fn allow_if_given(&mut self, args: &[u8]) {
        for (i, &arg) in args.iter().enumerate() {
            let to_allow = 4 * (args.len() - 1 - i) as u8;
            self.load(arg_low(arg));
            self.test(JUMP_EQUAL, 0, 0, to_allow + 3);
            self.load(arg_high(arg));
            self.test(JUMP_EQUAL, 0, 0, to_allow + 1);
        }
        self.push(JUMP, 0, 0, 1);
        self.ret(ALLOW);
    }

    /// Of msgctl, shmctl and semctl; the latter has other numbers for some commands.
    fn allow_unless_ipc_times(&mut self, arg: u8) {
        const SEMCTL_COMMAND: u8 = 2;
        const IPC_STAT: u32 = 2;
        let commands: &[u32] = match arg {
            // SEM_STAT, SEM_STAT_ANY.
            SEMCTL_COMMAND => &[IPC_STAT, 18, 20],
            // MSG_STAT, SHM_STAT and SHM_STAT_ANY, of which one has the number of MSG_STAT_ANY.
            _ => &[IPC_STAT, 11, 13, 15],
        };
        self.load(arg_low(arg));
        for (i, command) in commands.iter().enumerate() {
            self.test(JUMP_EQUAL, *command, (commands.len() - i) as u8, 0);
        }
        self.ret(ALLOW);
    }

    /// Allows the call when `arg` as an int is 0 or negative and `others` are null.
    fn allow_unless_positive(&mut self, arg: u8, others: &[u8]) {
        let behind = 4 * others.len() as u8 + 1;
        self.load(arg_low(arg));
        self.test(JUMP_EQUAL, 0, 1, 0);
        self.test(JUMP_GREATER, i32::MAX as u32, 0, behind);
        self.allow_unless_given(others);
    }

    fn allow_unless_futex_wait(&mut self) {
        const COMMAND: u32 = 0x7f;
        // WAIT, WAIT_BITSET, LOCK_PI, LOCK_PI2, WAIT_REQUEUE_PI.
        const WAITS: [u32; 5] = [0, 9, 6, 13, 11];
        self.load(arg_low(1));
        self.push(AND, 0, 0, COMMAND);
        for (i, wait) in WAITS.iter().enumerate() {
            self.test(JUMP_EQUAL, *wait, (WAITS.len() - i) as u8, 0);
        }
        self.ret(ALLOW);
        self.allow_unless_given(&[3]);
    }

    fn allow_unless_option(&mut self, options: &[u32]) {
        const SOL_SOCKET: u32 = 1;
        self.load(arg_low(1));
        self.test(JUMP_EQUAL, SOL_SOCKET, 1, 0);
        self.ret(ALLOW);
        self.load(arg_low(2));
        for (i, option) in options.iter().enumerate() {
            self.test(JUMP_EQUAL, *option, (options.len() - i) as u8, 0);
        }
        self.ret(ALLOW);
    }

    fn load(&mut self, offset: u32) {
        self.push(LOAD, 0, 0, offset);
    }

    fn test(&mut self, code: u16, operand: u32, if_true: u8, if_false: u8) {
        self.push(code, if_true, if_false, operand);
    }

    fn ret(&mut self, action: u32) {
        self.push(RETURN, 0, 0, action);
    }

    fn push(&mut self, code: u16, if_true: u8, if_false: u8, operand: u32) {
        self.code[self.len] = Instruction { code, if_true, if_false, operand };
        self.len += 1;
    }
}

/// Instructions to put before a program's own filter, so that what the handler needs to do its work and to return is
/// let through when the image asks for it: signal masks, waiting, looking at the clock, and to be adopted ([`crate::adopt`]) one more
/// filter, which only takes rights away. Of the monitor's services: what a call site looks like, and the descriptors of an adoption.
/// Nothing that opens or sends.
pub fn allow_handler(into: &mut [Instruction]) -> usize {
    const NEEDED: [Sysno; 26] = [
        Sysno::rt_sigreturn,
        Sysno::rt_sigprocmask,
        Sysno::rt_sigpending,
        Sysno::rt_sigaction,
        Sysno::clock_gettime,
        Sysno::clock_nanosleep,
        Sysno::ppoll,
        Sysno::pselect6,
        Sysno::epoll_wait,
        Sysno::epoll_pwait2,
        Sysno::io_pgetevents,
        Sysno::futex,
        Sysno::getpid,
        Sysno::gettid,
        Sysno::getitimer,
        Sysno::setitimer,
        Sysno::timer_gettime,
        Sysno::timer_settime,
        Sysno::timerfd_gettime,
        Sysno::timerfd_settime,
        Sysno::preadv2,
        Sysno::faccessat2,
        Sysno::fstat,
        Sysno::munmap,
        Sysno::seccomp,
        Sysno::close,
    ];
    let mut program = Program::<EXTRA_LEN> { code: [Instruction::default(); EXTRA_LEN], len: 0 };
    const MONITOR: usize = 5;
    const SEMAPHORE: usize = 4;
    let to_theirs = (NEEDED.len() + 2 + MONITOR + SEMAPHORE) as u8;
    program.load(IP_HIGH);
    program.test(JUMP_EQUAL, 0, 0, to_theirs + 4);
    program.load(IP_LOW);
    program.test(JUMP_NOT_BELOW, IMAGE as u32, 0, to_theirs + 2);
    program.test(JUMP_NOT_BELOW, (IMAGE + IMAGE_LEN) as u32, to_theirs + 1, 0);
    program.load(NUMBER);
    for (i, number) in NEEDED.iter().enumerate() {
        program.test(JUMP_EQUAL, number.number(), (NEEDED.len() - i) as u8, 0);
    }
    // A number that is on the list goes to the first instruction behind it.
    program.push(JUMP, 0, 0, 1);
    program.ret(ALLOW);
    // A first argument that is not on either list is no number of a call that is.
    program.test(JUMP_EQUAL, ASK_MONITOR.number(), 0, 4);
    program.load(arg_low(0));
    program.test(JUMP_EQUAL, ASK_FOR_FILE as u32, 1, 0);
    program.test(JUMP_EQUAL, ASK_CALL_SITE as u32, 0, 1);
    program.ret(ALLOW);
    program.test(JUMP_EQUAL, Sysno::semtimedop.number(), 0, 3);
    program.load(arg_low(0));
    program.test(JUMP_EQUAL, NO_SEMAPHORE as u32, 0, 1);
    program.ret(ALLOW);
    into[..program.len].copy_from_slice(program.code());
    program.len
}

#[cfg(test)]
mod tests;
