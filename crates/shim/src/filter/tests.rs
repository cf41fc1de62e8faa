//! The filters, run as the kernel runs them.

use super::*;
use std::collections::BTreeSet;
use std::vec::Vec;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
/// Where a program's own code may lie.
const OUTSIDE: u64 = 0x7f12_3456_7890;
const INSIDE: u64 = IMAGE as u64 + 0x1234;
/// Some pointers; the low half of the last two is null.
const POINTERS: [u64; 4] = [1, 0x7ffc_0000_0010, 1 << 32, 0x7ffc_0000_0000];
/// The rest of a call that has nothing to do with time.
const JUNK: [u64; 6] = [u64::MAX, 0x0123_4567_89ab_cdef, 1, 1 << 32, 77, 0xffff_ffff];

const EXTRAS: [Extra; 5] =
    [Extra::Messages, Extra::Sockets, Extra::Reads, Extra::Rewinds, Extra::Capabilities];

fn policies() -> impl Iterator<Item = Policy> {
    (0..128).map(|bits| Policy {
        real_cpu_clocks: bits & 1 != 0,
        real_file_times: bits & 2 != 0,
        trap_tsc: bits & 4 != 0,
        counts_tasks: bits & 8 != 0,
        orders_sends: bits & 16 != 0,
        keeps_code: bits & 32 != 0,
        may_set_clock: bits & 64 != 0,
    })
}

/// A call as a filter sees it: struct seccomp_data.
#[derive(Clone, Copy, Debug)]
struct Call {
    number: u32,
    architecture: u32,
    ip: u64,
    args: [u64; 6],
}

impl Call {
    fn new(number: impl Into<u32>, args: [u64; 6]) -> Call {
        Call { number: number.into(), architecture: X86_64, ip: OUTSIDE, args }
    }

    fn from(self, ip: u64) -> Call {
        Call { ip, ..self }
    }

    fn word(&self, offset: u32) -> u32 {
        assert_eq!(offset % 4, 0, "a filter loads aligned words");
        let half =
            |value: u64| if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 };
        match offset {
            0 => self.number,
            4 => self.architecture,
            8 | 12 => half(self.ip),
            16..64 => half(self.args[(offset as usize - 16) / 8]),
            _ => panic!("there is nothing at {offset}"),
        }
    }
}

/// The filter's verdict on a call.
#[derive(PartialEq, Eq, Debug)]
struct Verdict {
    /// `None`: the instructions ended without a word.
    action: Option<u32>,
    /// Whether more was looked at than number and architecture.
    by_more_than_number: bool,
}

fn run(code: &[Instruction], call: Call) -> Verdict {
    let mut verdict = Verdict { action: None, by_more_than_number: false };
    let (mut word, mut at) = (0, 0);
    while let Some(instruction) = code.get(at) {
        let Instruction { code, if_true, if_false, operand } = *instruction;
        at += 1;
        let mut jump_if = |truth: bool| at += usize::from(if truth { if_true } else { if_false });
        match code {
            0x20 => {
                word = call.word(operand);
                verdict.by_more_than_number |= operand >= 8;
            }
            0x54 => word &= operand,
            0x05 => at += operand as usize,
            0x15 => jump_if(word == operand),
            0x25 => jump_if(word > operand),
            0x35 => jump_if(word >= operand),
            0x06 => return Verdict { action: Some(operand), ..verdict },
            _ => panic!("no instruction of ours: {instruction:?}"),
        }
    }
    verdict
}

fn program() -> Program<PROGRAM_LEN> {
    Program::of_program(Policy::default())
}

fn ask(call: Call) -> u32 {
    run(program().code(), call).action.expect("a filter ends with a word")
}

/// The tables that are in a program's filter.
fn rows(policy: Policy) -> Vec<(Sysno, When)> {
    let mut rows: Vec<_> = calls(Where::Everywhere).collect();
    if !policy.real_cpu_clocks {
        rows.extend(calls(Where::CpuTimes));
    }
    if !policy.real_file_times {
        rows.extend(calls(Where::FileTimes));
    }
    if policy.counts_tasks {
        rows.extend(calls(Where::CountedTasks));
    }
    if policy.orders_sends {
        rows.extend(calls(Where::OrderedSends));
    }
    rows
}

/// `JUNK` with these arguments in it.
fn with(args: &[(u8, u64)]) -> [u64; 6] {
    let mut all = JUNK;
    args.iter().for_each(|(arg, value)| all[*arg as usize] = *value);
    all
}

#[test]
fn the_kernel_accepts_the_filters() {
    let check = |code: &[Instruction], room: usize| {
        assert!(code.len() < room, "{} instructions", code.len());
        assert_eq!(code.last().map(|last| last.code), Some(RETURN));
        for (at, instruction) in code.iter().enumerate() {
            let jumps = match instruction.code {
                LOAD => {
                    assert!(instruction.operand < 64 && instruction.operand % 4 == 0);
                    continue;
                }
                AND | RETURN => continue,
                JUMP => [instruction.operand as usize, 0],
                JUMP_EQUAL | JUMP_GREATER | JUMP_NOT_BELOW => {
                    [instruction.if_true.into(), instruction.if_false.into()]
                }
                _ => panic!("{instruction:?}"),
            };
            assert!(jumps.iter().all(|jump| at + 1 + jump < code.len()), "{at}: {instruction:?}");
        }
    };
    policies().for_each(|policy| check(Program::of_program(policy).code(), PROGRAM_LEN));
    EXTRAS.into_iter().for_each(|extra| check(Program::of_extra(extra).code(), EXTRA_LEN));
}

#[test]
fn instructions_are_as_the_kernel_reads_them() {
    let jump = Instruction { code: JUMP_NOT_BELOW, if_true: 1, if_false: 2, operand: 0x0403_0201 };
    assert_eq!(jump.to_bytes(), [0x35, 0, 1, 2, 1, 2, 3, 4]);
}

#[test]
fn no_number_stands_in_a_filter_twice() {
    let distinct =
        |rows: &[(Sysno, When)]| rows.iter().map(|row| row.0.number()).collect::<BTreeSet<_>>();
    let all = rows(Policy::default());
    assert_eq!(distinct(&all).len(), all.len());
    for extra in EXTRAS {
        let calls: Vec<_> = extra.calls().collect();
        assert_eq!(distinct(&calls).len(), calls.len());
    }
}

/// Then the kernel knows it by the number, and does not run the filter at all.
#[test]
fn what_has_nothing_to_do_with_time_is_allowed_by_its_number() {
    let numbers = || (0..2_000).chain((0..30).map(|bit| 1 << bit)).chain([0x3fff_ffff]);
    let allowed = Verdict { action: Some(ALLOW), by_more_than_number: false };
    let check = |code: &[Instruction], rows: &[(Sysno, When)]| {
        let ours: BTreeSet<u32> = rows.iter().map(|row| row.0.number()).collect();
        for number in numbers().filter(|number| !ours.contains(number)) {
            for (args, ip) in [([0; 6], OUTSIDE), (JUNK, INSIDE)] {
                assert_eq!(run(code, Call::new(number, args).from(ip)), allowed, "{number}");
            }
        }
    };
    policies().for_each(|policy| check(Program::of_program(policy).code(), &rows(policy)));
    for extra in EXTRAS {
        check(Program::of_extra(extra).code(), &extra.calls().collect::<Vec<_>>());
    }
}

#[test]
fn other_architectures_are_refused() {
    let foreign = |number, architecture| Call { architecture, ..Call::new(number, JUNK) };
    let refused = Verdict { action: Some(ENOSYS), by_more_than_number: false };
    let left_to_the_first = Verdict { action: Some(ALLOW), by_more_than_number: false };
    for number in (0..600).chain([ASK_MONITOR.number()]) {
        for ip in [OUTSIDE, INSIDE] {
            for call in [
                foreign(number, I386),
                foreign(number, 0xc000_00b7),
                foreign(number, 0),
                foreign(0x4000_0000 | number, X86_64),
                foreign(0x8000_0000 | number, X86_64),
                foreign(u32::MAX - number, X86_64),
            ] {
                let call = call.from(ip);
                policies().for_each(|policy| {
                    assert_eq!(run(Program::of_program(policy).code(), call), refused, "{call:?}");
                });
                EXTRAS.into_iter().for_each(|extra| {
                    let verdict = run(Program::of_extra(extra).code(), call);
                    assert_eq!(verdict, left_to_the_first, "{call:?}");
                });
            }
        }
    }
}

/// Argument values of one row that are trapped, and those that are not.
fn sides(when: When) -> (Vec<[u64; 6]>, Vec<[u64; 6]>) {
    let pointers = |arg: u8, rest: &[(u8, u64)]| {
        let rest = rest.to_vec();
        POINTERS.map(|pointer| {
            let mut args = with(&rest);
            args[arg as usize] = pointer;
            args
        })
    };
    // Only the low half of an int counts.
    const NOT_POSITIVE: [u64; 6] =
        [0, u64::MAX, 0xffff_ffff, 0x8000_0000, 1 << 32, 0x7fff_ffff_0000_0000];
    const POSITIVE: [u64; 5] = [1, 5, 0x7fff_ffff, 1 << 32 | 1, 0xffff_ffff_0000_0005];
    match when {
        When::Always => ([[0; 6], JUNK].into(), [].into()),
        When::Given(arg) => (pointers(arg, &[]).into(), [with(&[(arg, 0)])].into()),
        When::EitherGiven(a, b) => {
            let mut trapped = pointers(a, &[(b, 0)]).to_vec();
            trapped.extend(pointers(b, &[(a, 0)]));
            trapped.extend(pointers(b, &[(a, 1 << 32)]));
            (trapped, [with(&[(a, 0), (b, 0)])].into())
        }
        When::Positive(arg) => (
            POSITIVE.map(|value| with(&[(arg, value)])).into(),
            NOT_POSITIVE.map(|value| with(&[(arg, value)])).into(),
        ),
        When::PositiveOrGiven(arg, b) => {
            let mut trapped = POSITIVE.map(|value| with(&[(arg, value), (b, 0)])).to_vec();
            trapped.extend(pointers(b, &[(arg, 0)]));
            trapped.extend(pointers(b, &[(arg, u64::MAX)]));
            (trapped, NOT_POSITIVE.map(|value| with(&[(arg, value), (b, 0)])).into())
        }
        When::NewTimeNamespace => (
            [0x80, 0x80 | 1 << 32, 0x2002_0080].map(|flags| with(&[(0, flags)])).into(),
            [0, 0x80 << 32, 0x6e02_0000].map(|flags| with(&[(0, flags)])).into(),
        ),
        _ => ([].into(), [].into()),
    }
}

#[test]
fn each_row_looks_at_its_arguments() {
    for (number, when) in rows(Policy::default()) {
        let (trapped, allowed) = sides(when);
        for (args, action) in
            trapped.iter().map(|args| (args, TRAP)).chain(allowed.iter().map(|args| (args, ALLOW)))
        {
            assert_eq!(ask(Call::new(number, *args)), action, "{number} {when:?} {args:x?}");
            // The image's own calls are the host's.
            assert_eq!(ask(Call::new(number, *args).from(INSIDE)), ALLOW, "{number} {when:?}");
        }
    }
}

/// The same by name, as a program would call them.
#[test]
fn calls_without_a_finite_timeout_run_untouched() {
    const MINUS_ONE: u64 = -1_i32 as u32 as u64;
    const TIMEOUT: u64 = 0x7ffc_dead_0000;
    let cases = [
        (Sysno::poll, with(&[(2, MINUS_ONE)]), ALLOW),
        (Sysno::poll, with(&[(2, -1_i64 as u64)]), ALLOW),
        (Sysno::poll, with(&[(2, 0)]), ALLOW),
        (Sysno::poll, with(&[(2, 1)]), TRAP),
        (Sysno::epoll_wait, with(&[(3, MINUS_ONE)]), ALLOW),
        (Sysno::epoll_wait, with(&[(3, 0)]), ALLOW),
        (Sysno::epoll_wait, with(&[(3, 5)]), TRAP),
        (Sysno::epoll_pwait, with(&[(3, MINUS_ONE), (4, 0)]), ALLOW),
        (Sysno::epoll_pwait, with(&[(3, MINUS_ONE), (4, TIMEOUT)]), TRAP),
        (Sysno::epoll_pwait, with(&[(3, 5), (4, 0)]), TRAP),
        (Sysno::epoll_pwait2, with(&[(3, 0), (4, 0)]), ALLOW),
        (Sysno::epoll_pwait2, with(&[(3, TIMEOUT), (4, 0)]), TRAP),
        (Sysno::ppoll, with(&[(2, 0), (3, 0)]), ALLOW),
        (Sysno::ppoll, with(&[(2, TIMEOUT), (3, 0)]), TRAP),
        (Sysno::select, with(&[(4, 0)]), ALLOW),
        (Sysno::select, with(&[(4, TIMEOUT)]), TRAP),
        (Sysno::pselect6, with(&[(4, 0), (5, 0)]), ALLOW),
        (Sysno::pselect6, with(&[(4, 0), (5, TIMEOUT)]), TRAP),
        (Sysno::semtimedop, with(&[(3, 0)]), ALLOW),
        (Sysno::recvmmsg, with(&[(4, 0)]), ALLOW),
        (Sysno::recvmmsg, with(&[(4, TIMEOUT)]), TRAP),
        (Sysno::futex_waitv, with(&[(3, 0)]), ALLOW),
        (Sysno::futex_waitv, with(&[(3, TIMEOUT)]), TRAP),
        (Sysno::nanosleep, [0; 6], TRAP),
        (Sysno::clock_gettime, [0; 6], TRAP),
        (Sysno::utimensat, with(&[(2, 0)]), ALLOW),
        (Sysno::wait4, with(&[(3, 0)]), ALLOW),
        (Sysno::wait4, with(&[(3, TIMEOUT)]), TRAP),
    ];
    for (number, args, action) in cases {
        assert_eq!(ask(Call::new(number, args)), action, "{number} {args:x?}");
    }
}

#[test]
fn calls_that_tell_the_times_of_system_v_objects_are_trapped() {
    for (number, arg, trapped, others) in [
        (Sysno::msgctl, 1, &[2, 11, 13][..], &[0, 1, 3, 12][..]),
        (Sysno::shmctl, 1, &[2, 13, 15], &[0, 1, 3, 12, 14]),
        (Sysno::semctl, 2, &[2, 18, 20], &[0, 1, 3, 11, 12, 13, 14, 15, 16, 17, 19]),
    ] {
        for (commands, action) in [(trapped, TRAP), (others, ALLOW)] {
            for command in commands {
                assert_eq!(ask(Call::new(number, with(&[(arg, *command)]))), action, "{command}");
            }
        }
    }
}

#[test]
fn only_the_way_back_to_the_start_of_a_file_is_trapped() {
    let ask = |number, args| {
        run(Program::of_extra(Extra::Rewinds).code(), Call::new(number, args)).action
    };
    assert_eq!(ask(Sysno::lseek, with(&[(1, 0), (2, 0)])), Some(TRAP));
    assert_eq!(ask(Sysno::pread64, with(&[(3, 0)])), Some(TRAP));
    for pointer in POINTERS {
        assert_eq!(ask(Sysno::lseek, with(&[(1, pointer), (2, 0)])), Some(ALLOW));
        assert_eq!(ask(Sysno::lseek, with(&[(1, 0), (2, pointer)])), Some(ALLOW));
        assert_eq!(ask(Sysno::pread64, with(&[(3, pointer)])), Some(ALLOW));
    }
}

#[test]
fn children_on_a_stack_of_the_programs_choice_are_trapped() {
    const VM: u64 = 0x100;
    const VFORK: u64 = 0x4000;
    const THREAD: u64 = 0x1_0000;
    const SIGCHLD: u64 = 17;
    let ask = |flags, stack| ask(Call::new(Sysno::clone, with(&[(0, flags), (1, stack)])));
    for stack in POINTERS {
        for (flags, action) in [
            (SIGCHLD, TRAP),
            (VM | SIGCHLD, TRAP),
            (VFORK | SIGCHLD, TRAP),
            (VM | VFORK | SIGCHLD, TRAP),
            (VM | THREAD, ALLOW),
            (VM | VFORK | THREAD, ALLOW),
        ] {
            assert_eq!(ask(flags, stack), action, "{flags:x} {stack:x}");
            assert_eq!(ask(flags, 0), ALLOW, "{flags:x}: as fork does it");
        }
    }
}

#[test]
fn futexes_are_trapped_where_they_wait_with_a_timeout() {
    const PRIVATE: u64 = 128;
    const CLOCK_REALTIME: u64 = 256;
    const WAIT: u64 = 0;
    const LOCK_PI: u64 = 6;
    const WAIT_BITSET: u64 = 9;
    const WAIT_REQUEUE_PI: u64 = 11;
    const LOCK_PI2: u64 = 13;
    let waits = [WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2];
    for command in 0..32 {
        for flags in [0, PRIVATE, CLOCK_REALTIME, PRIVATE | CLOCK_REALTIME] {
            // The kernel takes the operation for an int: what is in its high half does not count.
            for garbage in [0, 0xffff_ffff_0000_0000] {
                let operation = garbage | flags | command;
                let verdict =
                    |timeout| ask(Call::new(Sysno::futex, with(&[(1, operation), (3, timeout)])));
                assert_eq!(verdict(0), ALLOW, "{operation:x}");
                for timeout in POINTERS {
                    // Of other operations this argument is a number.
                    let expected = if waits.contains(&command) { TRAP } else { ALLOW };
                    assert_eq!(verdict(timeout), expected, "{operation:x} {timeout:x}");
                }
            }
        }
    }
}

#[test]
fn signal_actions_are_trapped_where_they_are_set_or_ours() {
    for signal in 0..70 {
        let ours = [SIGSYS, CLOCK_CHANGE, SIGSEGV].contains(&(signal as u32));
        let verdict =
            |action| ask(Call::new(Sysno::rt_sigaction, with(&[(0, signal), (1, action)])));
        assert_eq!(verdict(0), if ours { TRAP } else { ALLOW }, "{signal}");
        assert!(POINTERS.iter().all(|action| verdict(*action) == TRAP), "{signal}");
    }
}

#[test]
fn socket_options_are_trapped_where_they_have_to_do_with_time() {
    const SOCKET_LEVEL: u64 = 1;
    const TIMEOUTS: [u64; 4] = [20, 21, 66, 67];
    const STAMPS: [u64; 6] = [29, 63, 35, 64, 37, 65];
    for option in 0..100 {
        for level in [0, 1, 6, 17, 41, 270] {
            let args = with(&[(1, level), (2, option)]);
            let (timeout, stamp) = (TIMEOUTS.contains(&option), STAMPS.contains(&option));
            for (number, concerned) in
                [(Sysno::setsockopt, timeout || stamp), (Sysno::getsockopt, timeout)]
            {
                let trapped = concerned && level == SOCKET_LEVEL;
                let expected = if trapped { TRAP } else { ALLOW };
                assert_eq!(ask(Call::new(number, args)), expected, "{number} {level} {option}");
            }
        }
    }
}

#[test]
fn prctl_and_ptrace_are_trapped_for_a_few_requests() {
    for request in (0..100).chain(0x4200..0x4220).chain([0x5961_6d61]) {
        for (number, trapped) in
            [(Sysno::prctl, request == 22), (Sysno::ptrace, [0, 16, 0x4206].contains(&request))]
        {
            let expected = if trapped { TRAP } else { ALLOW };
            assert_eq!(
                ask(Call::new(number, with(&[(0, request)]))),
                expected,
                "{number} {request}"
            );
        }
    }
}

#[test]
fn policies_choose_their_tables() {
    for policy in policies() {
        let program = Program::of_program(policy);
        for (place, real) in
            [(Where::CpuTimes, policy.real_cpu_clocks), (Where::FileTimes, policy.real_file_times)]
        {
            for (number, _) in calls(place) {
                let verdict = run(program.code(), Call::new(number, JUNK));
                assert_eq!(verdict.action, Some(if real { ALLOW } else { TRAP }), "{number}");
            }
        }
    }
}

/// The image ends where its data begin, and is known by all 64 bits of the address.
#[test]
fn the_image_is_known_by_its_addresses() {
    let (first, end) = (IMAGE as u64, (IMAGE + IMAGE_LEN) as u64);
    let call = Call::new(Sysno::nanosleep, JUNK);
    for ip in [first, first + 1, (first + end) / 2, end - 1] {
        assert_eq!(ask(call.from(ip)), ALLOW, "{ip:x}");
    }
    for ip in [0, first - 1, end, end + 1, 1 << 32 | first, 0xffff_ffff_0000_0000 | first, u64::MAX]
    {
        assert_eq!(ask(call.from(ip)), TRAP, "{ip:x}");
    }
}

/// A process that is adopted many times has many of them.
#[test]
fn the_filter_of_an_adopted_process_only_notifies() {
    let filter = Program::of_adopted();
    assert_eq!(filter.code().len(), 31);
    let notified = [Sysno::execve, Sysno::execveat, ASK_MONITOR];
    for number in 0..30_000 {
        let verdict = run(filter.code(), Call::new(number, JUNK).from(INSIDE));
        let is_notified = notified.iter().any(|call| call.number() == number);
        assert_eq!(verdict.action, Some(if is_notified { NOTIFY } else { ALLOW }), "{number}");
        assert!(
            is_notified || !verdict.by_more_than_number,
            "{number}: not by the kernel's bitmap"
        );
        let outside = run(filter.code(), Call::new(number, JUNK)).action;
        let first = ask(Call::new(number, JUNK));
        assert!(outside == Some(ALLOW) || outside == Some(first), "{number}: {outside:?}");
    }
}

#[test]
fn execs_go_to_the_monitor_through_the_image() {
    let plain = with(&[(5, 0)]);
    let magic = with(&[(5, EXEC_MAGIC.into())]);
    for number in [Sysno::execve, Sysno::execveat] {
        assert_eq!(ask(Call::new(number, plain)), TRAP);
        assert_eq!(ask(Call::new(number, JUNK)), TRAP);
        assert_eq!(ask(Call::new(number, plain).from(INSIDE)), NOTIFY);
        assert_eq!(ask(Call::new(number, magic)), NOTIFY);
        assert_eq!(ask(Call::new(number, magic).from(INSIDE)), NOTIFY);
    }
}

#[test]
fn some_calls_are_decided_by_their_number_alone() {
    for (number, action) in
        [(ASK_MONITOR, NOTIFY), (Sysno::clone3, ENOSYS), (Sysno::io_uring_setup, ENOSYS)]
    {
        for ip in [OUTSIDE, INSIDE] {
            let verdict = run(program().code(), Call::new(number, JUNK).from(ip));
            assert_eq!(verdict, Verdict { action: Some(action), by_more_than_number: false });
        }
    }
}

#[test]
fn extra_filters_trap_what_they_are_for() {
    for (extra, some) in [
        (Extra::Messages, &[Sysno::recvmsg, Sysno::recvmmsg][..]),
        (
            Extra::Sockets,
            &[
                Sysno::read,
                Sysno::write,
                Sysno::recvfrom,
                Sysno::sendto,
                Sysno::accept4,
                Sysno::connect,
            ],
        ),
        (Extra::Reads, &[Sysno::read]),
        (Extra::Capabilities, &[Sysno::capset]),
    ] {
        let program = Program::of_extra(extra);
        let action = |number, ip| run(program.code(), Call::new(number, JUNK).from(ip)).action;
        let calls: Vec<Sysno> = extra.calls().map(|row| row.0).collect();
        assert!(some.iter().all(|number| calls.contains(number)), "{extra:?}");
        for number in calls {
            assert_eq!(action(number, OUTSIDE), Some(TRAP), "{extra:?} {number}");
            assert_eq!(action(number, INSIDE), Some(ALLOW), "{extra:?} {number}");
        }
    }
}

mod own_filter;
