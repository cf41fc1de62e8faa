//! Instructions put before a program's own filter.

use super::*;

/// The instructions before a program's own filter let through some calls of the image, and are silent about all others.
#[test]
fn a_programs_own_filter_decides_but_for_what_the_handler_needs() {
    const THEIRS: u32 = 0x0005_0000 | 77;
    let unused = Instruction { operand: 12_345, ..Instruction::default() };
    let mut code = [unused; EXTRA_LEN];
    let len = allow_handler(&mut code);
    assert!(code[len..].iter().all(|left| *left == unused), "more was written than announced");
    // Behind it, one that refuses all, and would allow all if entered too late.
    code[len] = Instruction { code: RETURN, operand: THEIRS, ..Instruction::default() };
    code[len + 1] = Instruction { code: RETURN, operand: ALLOW, ..Instruction::default() };
    let code = &code[..len + 2];
    let verdict = |number, ip| run(code, Call::new(number, JUNK).from(ip)).action.unwrap();
    let let_through: BTreeSet<u32> =
        (0..1_000).filter(|number| verdict(*number, INSIDE) == ALLOW).collect();
    for needed in [
        Sysno::rt_sigreturn,
        Sysno::rt_sigprocmask,
        Sysno::rt_sigpending,
        Sysno::rt_sigaction,
        Sysno::clock_gettime,
        Sysno::clock_nanosleep,
        Sysno::ppoll,
        Sysno::pselect6,
        Sysno::epoll_pwait2,
        Sysno::futex,
        Sysno::getpid,
        Sysno::gettid,
        Sysno::timerfd_settime,
        Sysno::seccomp,
        Sysno::close,
    ] {
        assert!(let_through.contains(&needed.number()), "{needed:?}");
    }
    for harmful in [
        Sysno::read,
        Sysno::write,
        Sysno::open,
        Sysno::openat,
        Sysno::connect,
        Sysno::sendto,
        Sysno::sendmsg,
        Sysno::execve,
        Sysno::execveat,
        Sysno::mmap,
        Sysno::ptrace,
        Sysno::tgkill,
        Sysno::sched_yield,
        Sysno::memfd_create,
        Sysno::clone3,
        Sysno::prctl,
        Sysno::clock_settime,
        Sysno::settimeofday,
        Sysno::utimensat,
    ] {
        assert!(!let_through.contains(&harmful.number()), "{harmful:?}");
    }
    // Nor may it read or write another process's memory.
    const PROCESS_VM: [u32; 2] = [310, 311];
    assert!(PROCESS_VM.iter().all(|number| !let_through.contains(number)));
    // Of the monitor: what a call site looks like, and descriptors. Not the wall clock.
    for (request, expected) in [
        (ASK_FOR_FILE, ALLOW),
        (ASK_CALL_SITE, ALLOW),
        (ASK_SET_WALL, THEIRS),
        (ASK_STEP_WALL, THEIRS),
        (ASK_ADJTIME, THEIRS),
    ] {
        let asked = Call::new(ASK_MONITOR, [request, 1, 1, 0, 0, 0]).from(INSIDE);
        assert_eq!(run(code, asked).action, Some(expected), "{request}");
        assert_eq!(run(code, asked.from(OUTSIDE)).action, Some(THEIRS), "{request}");
    }
    // Operations on no semaphore, which only tell whether memory can be read.
    for (semaphore, expected) in [(-1_i64, ALLOW), (0xffff_ffff, ALLOW), (0, THEIRS), (7, THEIRS)] {
        let asked = Call::new(Sysno::semtimedop, [semaphore as u64, 1, 1, 0, 0, 0]).from(INSIDE);
        assert_eq!(run(code, asked).action, Some(expected), "{semaphore}");
        assert_eq!(run(code, asked.from(OUTSIDE)).action, Some(THEIRS), "{semaphore}");
    }
    for number in (0..1_000).chain([0x4000_0000, u32::MAX]) {
        let expected = if let_through.contains(&number) { ALLOW } else { THEIRS };
        for ip in [IMAGE as u64, (IMAGE + IMAGE_LEN) as u64 - 1] {
            assert_eq!(verdict(number, ip), expected, "{number}");
        }
        for ip in [OUTSIDE, IMAGE as u64 - 1, (IMAGE + IMAGE_LEN) as u64, 1 << 32 | INSIDE] {
            assert_eq!(verdict(number, ip), THEIRS, "{number} {ip:x}");
        }
    }
}

/// The source is asked: a call is on the list only if the shim makes it.
#[test]
fn the_handler_makes_each_call_that_a_programs_own_filter_is_made_to_allow() {
    let list = between(include_str!("../../filter.rs"), "const NEEDED", "];");
    let names: Vec<&str> = list.lines().skip(1).map(|line| line.trim().trim_matches(',')).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 20, "{names:?}");
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files =
        |dir: &str| std::fs::read_dir(source.join(dir)).unwrap().map(|one| one.unwrap().path());
    let others = |path: &std::path::PathBuf| path.is_file() && !path.ends_with("filter.rs");
    let texts: Vec<std::string::String> = files("")
        .chain(files("calls"))
        .chain(files("timers"))
        .filter(others)
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    // The pattern of a match only says who carries the call out.
    let lines =
        || texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.rsplit("=>").next());
    let makes = |name: &str| {
        let ends = |line: &str| {
            line.split(name).skip(1).any(|rest| {
                !rest.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
            })
        };
        lines().any(ends)
    };
    let unused: Vec<&str> = names.into_iter().filter(|name| !makes(name)).collect();
    // The restorer of the handlers makes it, in assembly.
    assert_eq!(unused, ["Sysno::rt_sigreturn"]);
}

/// The text behind `start` in `text`, up to `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).expect(start);
    rest.split_once(end).expect(end).0
}
