//! Commands to TimeKeeper's kernel module, as programs write them with `send_to_timekeeper`.
//!
//! A command is a letter of `include/TimeKeeper_definitions.h` and whole numbers, with commas between them: `E,17,1000` moves
//! process 17 forward by 1000 us. Each has the effect of the function that sends it in TimeKeeper's published code.

use lorentz_embed::{Error, Result};

use crate::keeper;

/// A command that has a function in [`keeper`].
#[derive(Clone, Copy, PartialEq, Debug)]
enum Command {
    /// `dilation` as [`keeper::rate_of`] takes it.
    Dilate {
        pid: i32,
        dilation: f64,
        tree: bool,
    },
    Freeze {
        pid: i32,
        tree: bool,
    },
    Unfreeze {
        pid: i32,
    },
    Leap {
        pid: i32,
        micros: i32,
    },
    Add {
        pid: i32,
        timeline: i32,
    },
    Synchronize,
    Start,
    SetInterval {
        pid: i32,
        micros: i32,
        timeline: i32,
    },
    Progress {
        timeline: i32,
    },
    /// Ends a `progress` of the module that has lost a process. Here `progress` returns whatever becomes of its processes.
    FixTimeline,
    Reset {
        timeline: i32,
    },
    Stop,
    SetTimeslice {
        nanos: i32,
    },
}

/// Executes one command, and returns when it has taken effect.
///
/// # Errors
///
/// The text is no command, or a command without an equivalent here; and the errors of the command's function.
pub fn send(text: &str) -> Result<()> {
    match read(text)? {
        Command::Dilate { pid, dilation, tree } => keeper::dilate(&pid.to_string(), dilation, tree),
        Command::Freeze { pid, tree } => keeper::freeze(&pid.to_string(), tree),
        Command::Unfreeze { pid } => keeper::unfreeze(&pid.to_string()),
        Command::Leap { pid, micros } => keeper::leap(&pid.to_string(), micros.into()),
        Command::Add { pid, timeline } => keeper::add_to_experiment(&pid.to_string(), timeline),
        Command::Synchronize => keeper::synchronize_and_freeze(keeper::owner()),
        Command::Start => keeper::start(),
        Command::SetInterval { pid, micros, timeline } => {
            keeper::set_interval(&pid.to_string(), micros.into(), timeline)
        }
        Command::Progress { timeline } => keeper::progress(timeline),
        Command::FixTimeline => Ok(()),
        Command::Reset { timeline } => keeper::reset(timeline),
        Command::Stop => keeper::stop(),
        Command::SetTimeslice { nanos } => keeper::set_timeslice(nanos.into()),
    }
}

fn read(text: &str) -> Result<Command> {
    // The published code sends a comma behind the last number, and a shell's echo a line break.
    let words = text.trim_end().trim_end_matches(',').split(',').collect::<Vec<_>>();
    let (letter, words) = words.split_first().unwrap_or((&"", &[]));
    if let Some(what) = without_equivalent(letter) {
        return Err(wrong(text, &format!("{what} has no equivalent here")));
    }
    let numbers = words.iter().map(|word| word.trim().parse());
    let numbers = numbers.collect::<std::result::Result<Vec<i32>, _>>();
    let numbers = numbers.map_err(|_| wrong(text, "expected whole numbers behind the letter"))?;
    command(letter, &numbers).ok_or_else(|| {
        wrong(text, "expected a letter of TimeKeeper_definitions.h and the numbers of its command")
    })
}

/// The module's commands that print into the kernel's log or send test messages, and the one for a device of the kernel.
fn without_equivalent(letter: &str) -> Option<&'static str> {
    match letter {
        "O" | "P" | "Q" | "R" | "S" => Some("a debugging command of the module"),
        "U" => Some("SET_NETDEVICE_OWNER"),
        _ => None,
    }
}

fn command(letter: &str, numbers: &[i32]) -> Option<Command> {
    Some(match (letter, numbers) {
        // A 1 says that the inverse of the TDF follows.
        ("A" | "B", &[pid, 1, inverse]) => {
            let dilation = -f64::from(inverse) / 1_000.0;
            Command::Dilate { pid, dilation, tree: letter == "B" }
        }
        ("A" | "B", &[pid, thousandths]) => {
            let dilation = f64::from(thousandths) / 1_000.0;
            Command::Dilate { pid, dilation, tree: letter == "B" }
        }
        ("C" | "D", &[pid, libc::SIGSTOP]) => Command::Freeze { pid, tree: letter == "D" },
        ("C" | "D", &[pid, libc::SIGCONT]) => Command::Unfreeze { pid },
        ("E", &[pid, micros]) => Command::Leap { pid, micros },
        ("F", &[pid]) => Command::Add { pid, timeline: -1 },
        ("G", &[pid, timeline]) => Command::Add { pid, timeline },
        ("H", &[]) => Command::Synchronize,
        ("I", &[]) => Command::Start,
        ("J", &[pid, micros, timeline]) => Command::SetInterval { pid, micros, timeline },
        // Behind the timeline: the thread to which the module sends its answer, and whether to force times.
        ("K", &[timeline, _, _]) => Command::Progress { timeline },
        ("L", &[_]) => Command::FixTimeline,
        ("M", &[timeline]) => Command::Reset { timeline },
        ("N", &[]) => Command::Stop,
        ("T", &[nanos]) => Command::SetTimeslice { nanos },
        _ => return None,
    })
}

fn wrong(text: &str, why: &str) -> Error {
    Error::wrong_input(format!("command {text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use lorentz_embed::ErrorKind;

    use super::*;

    #[test]
    fn commands_are_as_the_published_code_sends_them() {
        let dilate = |dilation, tree| Command::Dilate { pid: 17, dilation, tree };
        for (text, command) in [
            ("A,17,2000", dilate(2.0, false)),
            ("A,17,0", dilate(0.0, false)),
            ("B,17,1,10000,", dilate(-10.0, true)),
            ("C,17,19", Command::Freeze { pid: 17, tree: false }),
            ("D,17,19", Command::Freeze { pid: 17, tree: true }),
            ("C,17,18", Command::Unfreeze { pid: 17 }),
            ("E,17,1000\n", Command::Leap { pid: 17, micros: 1000 }),
            ("F,17", Command::Add { pid: 17, timeline: -1 }),
            ("G,17,3", Command::Add { pid: 17, timeline: 3 }),
            ("H", Command::Synchronize),
            ("I,", Command::Start),
            ("J,17,500,3", Command::SetInterval { pid: 17, micros: 500, timeline: 3 }),
            ("K,3,4711,1", Command::Progress { timeline: 3 }),
            ("L,3", Command::FixTimeline),
            ("M,3", Command::Reset { timeline: 3 }),
            ("N", Command::Stop),
            ("T,2000000", Command::SetTimeslice { nanos: 2_000_000 }),
        ] {
            assert_eq!(read(text), Ok(command), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_command_is_refused() {
        for (text, says) in [
            ("", "expected a letter"),
            ("Z,17", "expected a letter"),
            ("A,17", "expected a letter"),
            ("C,17,9", "expected a letter"),
            ("E,x,1000", "expected whole numbers"),
            ("E,17,99999999999", "expected whole numbers"),
            ("O,17", "a debugging command of the module has no equivalent here"),
            ("U,17,eth0", "SET_NETDEVICE_OWNER has no equivalent here"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::WrongInput);
            assert!(error.text.contains(says), "{text:?}: {}", error.text);
        }
    }

    #[test]
    fn fuzz_commands() {
        let words = [",", "1", "-1", "19", "A", "K", "\n"];
        lorentz_fuzz::fuzz("timekeeper", &["A,17,1,2000", "K,3,4711,1", "N"], &words, |bytes| {
            std::str::from_utf8(bytes).is_ok_and(|text| read(text).is_ok())
        });
    }
}
