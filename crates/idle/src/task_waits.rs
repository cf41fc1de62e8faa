//! The wait of each task of a clock: the call, its deadline, and who outside may end it.

use std::collections::HashMap;
use std::fs;

use lorentz_clock::{VirtualInstant, Waiter};
use lorentz_control::processes::{threads_of, Process};
use lorentz_control::Clock;
use lorentz_syscalls::NUMBERS;

use crate::external_wakers::{ExternalWakers, WakerCache, WakerFinding};
use crate::task::SleepingTask;
use crate::task_scan::{state_of, words_for};

/// System calls whose first argument is the file that they wait for.
const ON_A_FILE: [&str; 12] = [
    "read",
    "readv",
    "write",
    "writev",
    "recvfrom",
    "recvmsg",
    "sendto",
    "accept",
    "accept4",
    "connect",
    "epoll_wait",
    "epoll_pwait",
];

/// A task at one look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskWait {
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// The name of the thread.
    pub thread: String,
    /// The command line of the process, with blanks between the words.
    pub command: String,
    /// The state of a task that does not sleep, in words for people: "runs", "is stopped".
    pub state: Option<&'static str>,
    /// The system call that the task is in. `None` if it runs, or if the kernel does not say.
    pub call: Option<String>,
    /// The file that the call waits for, where its first argument is one.
    pub on: Option<String>,
    /// The deadline of the wait on the virtual monotonic clock. `None` without one.
    pub until: Option<VirtualInstant>,
    /// The one outside its clock that may wake the task, in words for people: "a terminal, /dev/pts/3".
    pub waker: Option<String>,
}

/// Returns the tasks of `processes`, which are on `clock`: first those that run, then by their deadlines.
///
/// Where the kernel does not let the caller look at a process, the waits that the clock knows are told, without a file or a waker.
pub fn task_waits(clock: &Clock, processes: &[Process]) -> Vec<TaskWait> {
    let registered: HashMap<u32, (u32, Option<VirtualInstant>)> =
        clock.waits().iter().map(|wait| (wait.thread.tid, (wait.call, wait.until))).collect();
    let members: Vec<u32> =
        processes.iter().filter(|one| !one.has_ended()).map(|one| one.pid).collect();
    let mut cache = WakerCache::default();
    let mut wakers = ExternalWakers::of(&members, &mut cache);
    let mut tasks = Vec::new();
    for &pid in &members {
        let command = command_line(pid);
        for tid in threads_of(pid) {
            let Some(state) = state_of(pid, tid).filter(|state| !matches!(state, 'Z' | 'X')) else {
                continue;
            };
            let asleep = state == 'S';
            let (number, on) = if asleep { call_of(pid, tid) } else { (None, None) };
            let known = registered.get(&tid).filter(|_| asleep);
            let number = known.map(|(call, _)| *call).or(number);
            let waker = asleep
                .then(|| match wakers.examine(&SleepingTask { pid, thread: tid, runs: 0 }) {
                    WakerFinding::Waker(blocker) => {
                        Some(blocker.what.trim_start_matches("waits for ").to_string())
                    }
                    _ => None,
                })
                .flatten();
            tasks.push(TaskWait {
                pid,
                tid,
                thread: of_thread(pid, tid, "comm"),
                command: command.clone(),
                state: (!asleep).then(|| words_for(state)),
                call: number.map(call_name),
                on,
                until: known.and_then(|(_, until)| *until),
                waker,
            });
        }
    }
    tasks.sort_by_key(|task| (task.state.is_none(), task.until.is_none(), task.until, task.tid));
    tasks
}

/// The number of the call that a sleeping thread is in, and the file that it waits for.
fn call_of(pid: u32, tid: u32) -> (Option<u32>, Option<String>) {
    let line = of_thread(pid, tid, "syscall");
    let mut words = line.split(' ');
    let Some(number) = words.next().and_then(|word| word.parse::<u32>().ok()) else {
        return (None, None);
    };
    let first = words.next().and_then(|word| word.strip_prefix("0x"));
    let descriptor = first.and_then(|word| u64::from_str_radix(word, 16).ok());
    let on = descriptor.filter(|_| ON_A_FILE.contains(&call_name(number).as_str()));
    let path = on.and_then(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok());
    (Some(number), path.map(|path| path.display().to_string()))
}

fn of_thread(pid: u32, tid: u32, file: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}"));
    text.unwrap_or_default().trim().to_string()
}

fn call_name(call: u32) -> String {
    if call == Waiter::SEND_ORDER {
        return "a send that waits for its turn".to_string();
    }
    let known = NUMBERS.iter().find(|(number, _)| number.number() == call);
    known.map_or_else(|| format!("call {call}"), |(_, name)| (*name).to_string())
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use lorentz_control::{ClockOptions, HostNow};

    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(call_name(libc::SYS_clock_nanosleep as u32), "clock_nanosleep");
        assert_eq!(call_name(100_000), "call 100000");
        for call in ON_A_FILE {
            assert!(NUMBERS.iter().any(|(_, name)| *name == call), "{call}");
        }
    }

    #[test]
    fn a_reader_of_a_pipe_is_told_with_the_pipe_and_its_writer() {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = ClockOptions::default().settings(&HostNow::read().expect("clocks"));
        let clock = Clock::create(&dir.path().join("clock"), &settings.expect("settings"));
        let mut cat = Command::new("cat");
        let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let process = Process::read(cat.id()).expect("a process");
        let clock = clock.expect("a clock");
        let looked = (0..10_000).find_map(|_| {
            let tasks = task_waits(&clock, std::slice::from_ref(&process));
            let reads = tasks.iter().any(|task| task.call.as_deref() == Some("read"));
            std::thread::yield_now();
            reads.then_some(tasks)
        });
        let task = looked.expect("cat reads").remove(0);
        cat.kill().expect("kill");
        cat.wait().expect("wait");
        assert_eq!((task.thread.as_str(), task.command.as_str(), task.state), ("cat", "cat", None));
        assert!(task.on.expect("a file").starts_with("pipe:["), "the read end");
        assert_eq!(task.until, None);
    }
}
