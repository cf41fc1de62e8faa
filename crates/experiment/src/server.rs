//! The process of an experiment: started in the background, controlled through its socket, supervised by a guard.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use lorentz_container::{start_in_background, ServiceDir, StateDir};
use nix::sys::signal::{SigSet, Signal};

use crate::directory;
use crate::error::ExperimentRefusal;
use crate::message::SchedulerMessage;
use crate::protocol::{ExperimentAnswer, ExperimentRequest};
use crate::scheduler::{Scheduler, SharedScheduler};
use crate::settings::{ExperimentOptions, ExperimentSettings};

/// Creates the experiment `name` and starts its process in the background. The caller must have one thread only.
///
/// # Errors
///
/// An error if the name is wrong or in use, the settings do not fit this machine, or no process can be started.
pub fn create(state: &StateDir, name: &str, wanted: &ExperimentOptions) -> anyhow::Result<()> {
    let settings = wanted.settings()?;
    let directory = directory::of_experiment(state, name)?;
    if directory.exists() {
        return Err(ExperimentRefusal::NameInUse(name.to_string()).into());
    }
    directory.make().with_context(|| format!("making the experiment {name}"))?;
    let listener = directory.listen().inspect_err(|_| directory.remove())?;
    start_in_background(&[listener.as_fd()], |ready| {
        // At its end the experiment has removed its directory. One of that name may be the next experiment's.
        serve(state, &directory, settings, listener.try_clone()?, || ready.done())
            .inspect_err(|_| directory.remove())
    })
}

fn serve(
    state: &StateDir,
    directory: &ServiceDir,
    settings: ExperimentSettings,
    listener: UnixListener,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    crate::guard::start(state, directory.name())?;
    end_on_panic();
    raise_priority();
    // A signal must not interrupt a change of a clock. Therefore one thread waits for the signals that end this process.
    let signals = SigSet::all();
    signals.thread_block()?;
    let (outbox, inbox) = channel();
    let scheduler = Scheduler::new(directory.name(), settings, state.clone(), &outbox)?;
    let scheduler = SharedScheduler::new(scheduler);
    end_on_signals(outbox.clone())?;
    let (callers, under_way) = (outbox.clone(), Arc::new(AtomicUsize::new(0)));
    let (counted, shared) = (under_way.clone(), scheduler.clone());
    thread::Builder::new().name("listener".into()).spawn(move || {
        for caller in listener.incoming().flatten() {
            let (outbox, under_way) = (callers.clone(), counted.clone());
            let scheduler = shared.clone();
            // If no thread can be made, the server closes the caller's connection.
            let _ = thread::Builder::new()
                .name("caller".into())
                .spawn(move || serve_client(&caller, &scheduler, &outbox, &under_way));
        }
    })?;
    ready();
    let ending_client = scheduler.run(&inbox);
    // Nobody handles requests any more.
    drop(inbox);
    // Remove the files first: a caller that gets the answer to its `end` finds nothing left.
    directory.remove();
    if let Some(answer) = ending_client {
        let _ = answer.send(ExperimentAnswer::Done);
    }
    let end = Instant::now() + ANSWER_TIMEOUT;
    while under_way.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// From now on a panic of any thread ends this process. The guard lets the containers go on then, and clients are told; the threads
/// that are left would wait for one that is gone.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

/// Gives this process the highest priority: all containers wait while one of its threads is about to run, and each run is short.
fn raise_priority() {
    const HIGHEST_PRIORITY: i32 = -20;
    // SAFETY: the call sets a number. Without the right to do so, this process keeps its usual priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST_PRIORITY) };
}

/// Time for the answers to be written after the experiment has ended.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers the requests of one caller until it closes its connection. `under_way` counts the requests that have come and have no
/// answer yet.
fn serve_client(
    caller: &UnixStream,
    scheduler: &SharedScheduler,
    outbox: &Sender<SchedulerMessage>,
    under_way: &AtomicUsize,
) -> io::Result<()> {
    /// Limit for the length of a request, bytes.
    const MAX_REQUEST_LEN: u64 = 4 << 20;
    let (sender, answers) = channel();
    let mut reader = BufReader::new(caller);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_REQUEST_LEN).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        under_way.fetch_add(1, Ordering::SeqCst);
        let answer = match serde_json::from_slice::<ExperimentRequest>(&line) {
            Err(error) => ExperimentAnswer::Refused { why: format!("{error}"), wrong_input: true },
            Ok(request) => {
                if let Err(request) = scheduler.handle_here(request, &sender) {
                    if outbox.send(SchedulerMessage::Request(request, sender.clone())).is_err() {
                        return Ok(());
                    }
                }
                match answers.recv() {
                    Ok(answer) => answer,
                    Err(_) => return Ok(()),
                }
            }
        };
        line.clear();
        serde_json::to_writer(&mut line, &answer)?;
        line.push(b'\n');
        let written = (&mut &*caller).write_all(&line);
        under_way.fetch_sub(1, Ordering::SeqCst);
        written?;
    }
}

/// Ends the experiment in good order on SIGTERM, SIGINT, SIGHUP or SIGQUIT.
fn end_on_signals(outbox: Sender<SchedulerMessage>) -> anyhow::Result<()> {
    let mut ending = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        ending.add(signal);
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        let (sender, _nobody) = channel();
        if ending.wait().is_ok() {
            let _ = outbox.send(SchedulerMessage::Request(ExperimentRequest::End, sender));
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use super::end_on_panic;

    /// Set in the process that panics.
    const PANICS: &str = "LORENTZ_TEST_PANICS";

    #[test]
    fn a_panic_of_a_thread_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            end_on_panic();
            let _ = thread::spawn(|| panic!("on purpose")).join();
            thread::sleep(Duration::from_secs(60));
            return;
        }
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", "server::tests::a_panic_of_a_thread_ends_the_process"]);
        let ended = again.arg("--nocapture").env(PANICS, "").output().expect("this program runs");
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("on purpose"));
    }
}
