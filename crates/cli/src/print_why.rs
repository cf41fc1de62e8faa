//! The answer of `lorentz why`, for people and as JSON.

use lorentz_clock::Span;
use lorentz_idle::TaskWait;
use serde_json::{json, Value};

use crate::print::{self, row, table};
use crate::why::{Findings, Leaping};

/// One sentence, and a table of the tasks.
pub fn words(found: &Findings) -> String {
    let mut text = format!("{}: {}\n", found.name, sentence(found));
    if found.tasks.is_empty() {
        return text + "no task runs or waits\n";
    }
    let head = ["PID", "THREAD", "DOES", "ON", "LEFT", "UNTIL", "MAY BE WOKEN BY"];
    let rows = found.tasks.iter().map(|task| cells(task, found));
    text.push('\n');
    text + &table(&std::iter::once(row(head)).chain(rows).collect::<Vec<_>>())
}

fn sentence(found: &Findings) -> String {
    let name = &found.name;
    let on = match found.is_skipping() {
        true => String::new(),
        false => format!("; idle time is not skipped: 'lorentz skip {name} on'"),
    };
    match &found.leaping {
        Leaping::Frozen => format!("time stands still: 'lorentz unfreeze {name}' lets it go on"),
        Leaping::InExperiment(experiment) => {
            format!("time goes on in rounds: 'lorentz experiment show {experiment}' shows them")
        }
        Leaping::Held(blocker) => {
            format!("time does not leap: process {} {}{on}", blocker.pid, blocker.what)
        }
        Leaping::NoDeadline => {
            format!("time does not leap: every task waits, and none has a deadline{on}")
        }
        Leaping::Free => match found.is_skipping() {
            true => format!("time leaps: every task waits, the next deadline is {}", next(found)),
            false => format!("every task waits, the next deadline is {}{on}", next(found)),
        },
    }
}

/// The next deadline, and the time until then.
fn next(found: &Findings) -> String {
    let at = found.deadline_ns.unwrap_or(found.reading.virt.0);
    let left = Span(at.saturating_sub(found.reading.virt.0).max(0));
    format!("{}, in {}", print::wall(found.reading.wall.plus(left)), print::elapsed(left.0))
}

fn cells(task: &TaskWait, found: &Findings) -> Vec<String> {
    let dash = || "-".to_string();
    let does = task.state.map(str::to_string).or_else(|| task.call.clone()).unwrap_or_else(dash);
    let (left, until) = match left_ns(task, found) {
        Some(left) => (print::elapsed(left), print::wall(found.reading.wall.plus(Span(left)))),
        None => (dash(), dash()),
    };
    let on = task.on.clone().unwrap_or_else(dash);
    let waker = task.waker.clone().unwrap_or_else(dash);
    row([&task.pid.to_string(), &task.thread, &does, &on, &left, &until, &waker])
}

/// Virtual time until the end of a task's wait.
fn left_ns(task: &TaskWait, found: &Findings) -> Option<i64> {
    task.until.map(|until| until.0.saturating_sub(found.reading.virt.0).max(0))
}

/// The same as JSON.
pub fn json(found: &Findings) -> Value {
    let held_by = match &found.leaping {
        Leaping::Held(blocker) => json!({ "pid": blocker.pid, "what": blocker.what }),
        _ => Value::Null,
    };
    let task = |task: &TaskWait| {
        json!({
            "pid": task.pid,
            "tid": task.tid,
            "thread": task.thread,
            "command": task.command,
            "state": task.state,
            "call": task.call,
            "on": task.on,
            "until_ns": task.until.map(|until| until.0),
            "left_ns": left_ns(task, found),
            "waker": task.waker,
        })
    };
    json!({
        "name": found.name,
        "wall": found.reading.wall.to_string(),
        "monotonic_ns": found.reading.virt.0,
        "skip_idle": print::mode_name(found.reading.skipping.mode),
        "leaping": match &found.leaping {
            Leaping::Frozen => "frozen",
            Leaping::InExperiment(_) => "in experiment",
            Leaping::Held(_) => "held",
            Leaping::NoDeadline => "no deadline",
            Leaping::Free => "free",
        },
        "held_by": held_by,
        "next_deadline_ns": found.deadline_ns,
        "tasks": found.tasks.iter().map(task).collect::<Vec<_>>(),
    })
}
