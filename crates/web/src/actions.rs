//! Actions: each is a command line of `lorentz`, checked here, run without a shell, and shown.

use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use lorentz_clock::{Rate, Span};
use lorentz_control::discipline::parse_frequency;
use lorentz_control::Date;
use lorentz_network::plan::Endpoint;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::app::App;
use crate::edits;
use crate::guard;
use crate::listen::Peer;
use crate::log;
use crate::reply::{self, Answer, Refusal};
use crate::types::{Action, ActionRequest, ActionResult, ClockFault, ExperimentMove};
use crate::words::{container, experiment, impairments, shown, words, Words};

/// Longest time for one command: bringing up a large network with images takes minutes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of a command's output that are returned; the rest is read and dropped.
const MAX_OUTPUT: usize = 64 * 1024;
/// How long the rest of its output is waited for when a command has ended.
const REST_TIMEOUT: Duration = Duration::from_millis(300);
/// Exit status of a command that did not end in time, as of timeout(1).
const TIMED_OUT: i32 = 124;

/// `POST /api/v1/do`.
pub async fn act(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Answer {
    let request: ActionRequest = reply::json_of(body).await?;
    let commands = commands(&app, &request.action).await?;
    let lines: Vec<String> = commands.iter().map(|words| shown(words)).collect();
    let command = lines.join(" && ");
    if request.dry {
        let nothing = String::new();
        return reply::json(&ActionResult {
            command,
            status: None,
            output: nothing.clone(),
            error: nothing,
        });
    }
    if app.read_only {
        return Err(guard::read_only());
    }
    let place = app.work.clone().try_acquire_owned();
    let place = place.map_err(|_| Refusal::too_many("do: expected at most 8 actions at once"))?;
    // The command goes on where the page is closed: half of an `up` would be left otherwise.
    let task = tokio::spawn(async move {
        let _place = place;
        let mut result =
            ActionResult { command, status: Some(0), output: String::new(), error: String::new() };
        for words in commands {
            let (status, output, error) = run(&app, &words).await;
            result.status = Some(status);
            result.output += &output;
            result.error += &error;
            if status != 0 {
                break;
            }
        }
        log::action("do", &peer.0, json!({ "command": result.command, "status": result.status }));
        app.live.look_soon();
        result
    });
    reply::json(&task.await.map_err(Refusal::failed)?)
}

/// Runs `lorentz` with `words` in the server's directory. Returns its status, output and errors.
async fn run(app: &App, words: &[String]) -> (i32, String, String) {
    let started = Command::new(&app.lorentz)
        .args(words)
        .current_dir(app.root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return (127, String::new(), format!("{}: {error}", app.lorentz.display())),
    };
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (mut output, mut error) = (Vec::new(), Vec::new());
    let ended = tokio::time::timeout(TIMEOUT, async {
        let reads = async { tokio::join!(read_some(out, &mut output), read_some(err, &mut error)) };
        let mut reads = pin!(reads);
        let mut wait = pin!(child.wait());
        tokio::select! {
            // Programs that it leaves in the background may keep its streams open: its own end counts.
            status = &mut wait => {
                let _ = tokio::time::timeout(REST_TIMEOUT, &mut reads).await;
                status
            }
            _ = &mut reads => wait.await,
        }
    });
    let ended = ended.await;
    let [output, mut error] =
        [output, error].map(|text| String::from_utf8_lossy(&text).into_owned());
    let status = match ended {
        Ok(Ok(status)) => status.code().unwrap_or(128),
        Ok(Err(_)) => 128,
        Err(_) => {
            error += "lorentz web: the command did not end in 10 minutes and was ended\n";
            TIMED_OUT
        }
    };
    (status, output, error)
}

/// Reads a stream to its end, and keeps the first [`MAX_OUTPUT`] bytes.
async fn read_some(stream: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut stream) = stream else { return };
    let mut some = [0; 4096];
    while let Ok(size @ 1..) = stream.read(&mut some).await {
        let room = MAX_OUTPUT.saturating_sub(kept.len());
        kept.extend_from_slice(&some[..size.min(room)]);
    }
}

/// Returns the command lines of an action, without `lorentz`.
async fn commands(app: &App, action: &Action) -> Result<Vec<Words>, Refusal> {
    match action {
        Action::Up { file, .. } => {
            // The name is below the directory, and no link leads out of it.
            app.root.read(file)?;
            Ok(vec![words_of(action)?])
        }
        Action::ExperimentProgress { name, timeline, interval: Some(interval) } => {
            let of = experiment(name)?;
            let interval = parsed::<Span>("interval", interval)?;
            let state = app.live.look(true).await?;
            let found = state.experiments.iter().find(|one| one.name == *name);
            let found =
                found.ok_or_else(|| Refusal::unknown(format!("{name}: no such experiment")))?;
            let on_it = found.containers.iter().filter(|one| one.timeline == Some(*timeline));
            let mut all: Vec<Words> = on_it
                .map(|one| words(&["experiment", "interval", &of, &one.name, &interval]))
                .collect();
            all.push(words_of(action)?);
            Ok(all)
        }
        _ => Ok(vec![words_of(action)?]),
    }
}

/// Returns the command line of an action that has one.
fn words_of(action: &Action) -> Result<Words, Refusal> {
    Ok(match action {
        Action::Dilate { name, rate, tdf } => {
            let [flag, value] = one_of::<Rate>([("rate", rate), ("tdf", tdf)])?;
            words(&["dilate", &container(name)?, &flag, &value])
        }
        Action::Freeze { name } => words(&["freeze", &container(name)?]),
        Action::Unfreeze { name } => words(&["unfreeze", &container(name)?]),
        Action::Leap { name, by, to } => moved("leap", name, by, to)?,
        Action::Step { name, by, to } => moved("step", name, by, to)?,
        Action::Clock { name, fault, by, length, slew } => {
            clock_fault(&container(name)?, *fault, [("by", by), ("for", length), ("slew", slew)])?
        }
        Action::Skip { name, on } => {
            words(&["skip", &container(name)?, if *on { "on" } else { "off" }])
        }
        Action::Link { network, end, both, set, up } => {
            let end: Endpoint =
                end.parse().map_err(|error| Refusal::wrong(format!("end: {error}")))?;
            let mut all =
                words(&["link", "set", &end.to_string(), "--network", &container(network)?]);
            if *both {
                all.push("--both".into());
            }
            all.extend(impairments(set)?);
            all.extend(up.map(|up| if up { "--up" } else { "--down" }.to_string()));
            all
        }
        Action::LinkAdd(new) => edits::link_add(new)?,
        Action::LinkRm { network, end } => edits::link_rm(network, end)?,
        Action::NodeAdd(new) => edits::node_add(new)?,
        Action::NodeRm { network, name } => edits::node_rm(network, name)?,
        Action::ScheduleAdd { network, change } => edits::schedule("add", network, change)?,
        Action::ScheduleMove { network, change, at } => {
            let mut all = edits::schedule("move", network, change)?;
            all.insert(3, parsed::<Span>("at", at)?);
            all
        }
        Action::ScheduleRm { network, change } => edits::schedule("rm", network, change)?,
        Action::Down { network } => words(&["down", &container(network)?]),
        Action::Up { file, rounds, tdf } => {
            let file = if file.starts_with('-') { format!("./{file}") } else { file.clone() };
            let mut all = words(&["up", &file]);
            if *rounds {
                all.push("--rounds".into());
            }
            if let Some(tdf) = tdf {
                all.extend(["--tdf".into(), parsed::<Rate>("tdf", tdf)?]);
            }
            all
        }
        Action::Rm { name } => words(&["rm", &container(name)?]),
        Action::Experiment { name, action } => {
            let verb = match action {
                ExperimentMove::Synchronize => "synchronize",
                ExperimentMove::Start => "start",
                ExperimentMove::Pause => "pause",
                ExperimentMove::Stop => "stop",
                ExperimentMove::End => "rm",
            };
            words(&["experiment", verb, &experiment(name)?])
        }
        Action::ExperimentProgress { name, timeline, .. } => {
            words(&["experiment", "progress", &experiment(name)?, &timeline.to_string()])
        }
        Action::ExperimentDilate { name, container: member, tdf } => {
            let tdf = parsed::<Rate>("tdf", tdf)?;
            words(&["experiment", "dilate", &experiment(name)?, &container(member)?, "--tdf", &tdf])
        }
    })
}

/// Returns the command line of a fault with the values that are `given`.
fn clock_fault(
    name: &str,
    fault: ClockFault,
    given: [(&str, &Option<String>); 3],
) -> Result<Words, Refusal> {
    let (verb, needed, optional) = match fault {
        ClockFault::Bump => ("bump", "by", "slew"),
        ClockFault::Drift => ("drift", "by", "for"),
        ClockFault::Strobe => ("strobe", "by", "for"),
        ClockFault::Suspend => ("suspend", "for", ""),
        ClockFault::InsertLeapSecond => {
            return Ok(words(&["clock", "leap-second", name, "insert"]))
        }
        ClockFault::DeleteLeapSecond => {
            return Ok(words(&["clock", "leap-second", name, "delete"]))
        }
        ClockFault::Reset => return Ok(words(&["clock", "reset", name])),
    };
    let mut all = words(&["clock", verb, name]);
    let mut flags = Words::new();
    for (key, value) in given {
        match value {
            Some(text) if key == needed && matches!(fault, ClockFault::Drift) => {
                all.push(checked(key, text, parse_frequency(text))?);
            }
            Some(text) if key == needed => all.push(parsed::<Span>(key, text)?),
            Some(text) if key == optional => {
                flags.extend([format!("--{key}"), parsed::<Span>(key, text)?]);
            }
            Some(_) => return Err(Refusal::wrong(format!("{key}: not with {verb}"))),
            None if key == needed => {
                return Err(Refusal::wrong(format!("{key}: expected with {verb}")));
            }
            None => {}
        }
    }
    all.extend(flags);
    Ok(all)
}

fn moved(
    verb: &str,
    name: &str,
    by: &Option<String>,
    to: &Option<String>,
) -> Result<Words, Refusal> {
    let name = container(name)?;
    match (by, to) {
        (Some(by), None) => Ok(words(&[verb, &name, "--by", &parsed::<Span>("by", by)?])),
        (None, Some(to)) => Ok(words(&[verb, &name, "--to", &parsed::<Date>("to", to)?])),
        _ => Err(Refusal::wrong("by, to: expected one of both")),
    }
}

/// Returns the only value that is given, with its flag.
fn one_of<T>(given: [(&str, &Option<String>); 2]) -> Result<[String; 2], Refusal>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    match given.map(|(flag, value)| value.as_ref().map(|value| (flag, value))) {
        [Some((flag, value)), None] | [None, Some((flag, value))] => {
            Ok([format!("--{flag}"), parsed::<T>(flag, value)?])
        }
        _ => Err(Refusal::wrong(format!("{}, {}: expected one of both", given[0].0, given[1].0))),
    }
}

/// Checks a value by the type that the command line has for it, so that no value is taken for a flag.
fn parsed<T>(key: &str, text: &str) -> Result<String, Refusal>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    checked(key, text, text.parse::<T>())
}

fn checked<T>(
    key: &str,
    text: &str,
    read: Result<T, impl std::fmt::Display>,
) -> Result<String, Refusal> {
    match read {
        Ok(_) => Ok(text.to_string()),
        Err(error) => {
            Err(Refusal::wrong(format!("{key}: {}", reply::one_line(&error.to_string()))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(json: &str) -> Result<String, String> {
        let request: ActionRequest = serde_json::from_str(json).unwrap();
        words_of(&request.action).map(|words| shown(&words)).map_err(|refusal| refusal.1)
    }

    #[test]
    fn each_action_has_its_command_line() {
        for (json, expected) in [
            (r#"{"do": "dilate", "name": "lab", "rate": "2"}"#, "lorentz dilate lab --rate 2"),
            (r#"{"do": "dilate", "name": "lab", "tdf": "1/3"}"#, "lorentz dilate lab --tdf 1/3"),
            (r#"{"do": "freeze", "name": "lab.a"}"#, "lorentz freeze lab.a"),
            (r#"{"do": "leap", "name": "lab", "by": "1h"}"#, "lorentz leap lab --by 1h"),
            (r#"{"do": "step", "name": "lab", "by": "-1h30m"}"#, "lorentz step lab --by -1h30m"),
            (
                r#"{"do": "step", "name": "lab", "to": "2038-01-19T03:14:00Z"}"#,
                "lorentz step lab --to 2038-01-19T03:14:00Z",
            ),
            (r#"{"do": "skip", "name": "c", "on": false}"#, "lorentz skip c off"),
            (
                r#"{"do": "clock", "name": "c", "fault": "bump", "by": "-90s", "slew": "30m"}"#,
                "lorentz clock bump c -90s --slew 30m",
            ),
            (
                r#"{"do": "clock", "name": "c", "fault": "drift", "by": "+200ppm", "for": "10m"}"#,
                "lorentz clock drift c +200ppm --for 10m",
            ),
            (
                r#"{"do": "clock", "name": "c", "fault": "suspend", "for": "2h"}"#,
                "lorentz clock suspend c 2h",
            ),
            (
                r#"{"do": "clock", "name": "c", "fault": "insert-leap-second"}"#,
                "lorentz clock leap-second c insert",
            ),
            (r#"{"do": "clock", "name": "c", "fault": "reset"}"#, "lorentz clock reset c"),
            (
                r#"{"do": "link", "network": "lab", "end": "a:eth0", "both": true, "set": {"delay": "20ms", "queue_packets": "9"}}"#,
                "lorentz link set a:eth0 --network lab --both --delay 20ms --queue-packets 9",
            ),
            (
                r#"{"do": "link", "network": "lab", "end": "a:eth0", "up": false}"#,
                "lorentz link set a:eth0 --network lab --down",
            ),
            (
                r#"{"do": "up", "file": "-my lab.yaml", "rounds": true, "tdf": "10"}"#,
                "lorentz up './-my lab.yaml' --rounds --tdf 10",
            ),
            (
                r#"{"do": "link-rm", "network": "lab", "end": "a:eth1"}"#,
                "lorentz link rm a:eth1 --network lab",
            ),
            (
                r#"{"do": "node-add", "network": "lab", "name": "c", "kind": "hub"}"#,
                "lorentz node add c --network lab --kind hub",
            ),
            (
                r#"{"do": "node-rm", "network": "lab", "name": "c"}"#,
                "lorentz node rm c --network lab",
            ),
            (r#"{"do": "experiment", "name": "x", "action": "end"}"#, "lorentz experiment rm x"),
            (
                r#"{"do": "experiment-dilate", "name": "x", "container": "c", "tdf": "2"}"#,
                "lorentz experiment dilate x c --tdf 2",
            ),
        ] {
            assert_eq!(line(json).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn nothing_wrong_becomes_a_word_of_a_command() {
        for (json, key) in [
            (r#"{"do": "clock", "name": "c", "fault": "bump"}"#, "by"),
            (r#"{"do": "clock", "name": "c", "fault": "drift", "by": "--json"}"#, "by"),
            (r#"{"do": "clock", "name": "c", "fault": "suspend", "for": "1h", "by": "1s"}"#, "by"),
            (r#"{"do": "freeze", "name": "--all"}"#, "name"),
            (r#"{"do": "freeze", "name": "a b"}"#, "name"),
            (r#"{"do": "freeze", "name": "../a"}"#, "name"),
            (r#"{"do": "dilate", "name": "a"}"#, "rate, tdf"),
            (r#"{"do": "dilate", "name": "a", "rate": "1", "tdf": "1"}"#, "rate, tdf"),
            (r#"{"do": "dilate", "name": "a", "rate": "--json"}"#, "rate"),
            (r#"{"do": "leap", "name": "a", "by": "soon"}"#, "by"),
            (r#"{"do": "leap", "name": "a", "to": "soon"}"#, "to"),
            (r#"{"do": "link", "network": "n", "end": "a"}"#, "end"),
            (r#"{"do": "link", "network": "n", "end": "a:e", "set": {"delay": "fast"}}"#, "delay"),
            (r#"{"do": "experiment-dilate", "name": "x", "container": "c", "tdf": "0"}"#, "tdf"),
        ] {
            let refused = line(json).unwrap_err();
            assert!(refused.starts_with(&format!("{key}: ")), "{json}: {refused}");
        }
    }
}
