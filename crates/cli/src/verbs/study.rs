//! `study` measures, `report` has the Python package judge.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lorentz_study::{Named, StudyOutcome, StudyProgress, Tools, STOP};
use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use serde_json::json;

use crate::print;
use crate::study_args::{Report, StudyVerb};
use crate::wrong_input::WrongInput;

const PROBE: &str = "lorentz-probe";
/// Says which modules a Python lacks, without loading them: some take seconds.
const MISSING: &str = "\
import importlib.util, sys
names = 'lorentz lorentz.report polars scipy pingouin scikit_posthocs statsmodels matplotlib jinja2'.split()
missing = [name for name in names if importlib.util.find_spec(name) is None]
sys.exit(', '.join(missing) if missing else 0)
";
/// The variable that names the Python which has the package.
const PYTHON_VARIABLE: &str = "LORENTZ_PYTHON";

pub fn study(verb: &StudyVerb) -> anyhow::Result<i32> {
    let (study, args) = verb.parts();
    let settings = args.settings(study);
    settings.check().map_err(|wrong| WrongInput(wrong.to_string()))?;
    let lorentz = env::current_exe().context("this program's own file")?;
    let probe = lorentz.with_file_name(PROBE);
    if !probe.exists() {
        anyhow::bail!("{}: it is not there; it is installed beside lorentz", probe.display());
    }
    stop_when_asked()?;
    // It draws on standard error, and only where that is a terminal.
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{wide_bar} {pos} of {len} records, {msg}")
            .expect("a template that is right"),
    );
    let start = std::time::Instant::now();
    let mut show = |progress: StudyProgress| {
        bar.set_length(progress.all);
        bar.set_position(progress.done);
        bar.set_message(time_left(&progress, start.elapsed().as_secs_f64()));
    };
    let done = lorentz_study::run(&settings, &Tools { lorentz, probe }, &args.output, &mut show);
    bar.finish_and_clear();
    tell(&done?, args.json)?;
    Ok(0)
}

/// By the mean of the records of this run; those that were there from an earlier one took no time.
fn time_left(progress: &StudyProgress, seconds: f64) -> String {
    let own = progress.done.saturating_sub(progress.resumed);
    if own == 0 {
        return "time left: not known yet".to_string();
    }
    let left = progress.all.saturating_sub(progress.done) as f64 * seconds / own as f64;
    format!("{} left", lorentz_clock::Span::from_secs(left.ceil() as i64))
}

fn tell(done: &StudyOutcome, as_json: bool) -> std::io::Result<()> {
    let left_out = done.left_out.iter();
    if as_json {
        let left_out = left_out.map(|(level, why)| (level.name().to_string(), json!(why)));
        return print::out_json(&json!({
            "output": done.path,
            "records": done.records,
            "resumed": done.resumed,
            "left_out": serde_json::Map::from_iter(left_out),
        }));
    }
    let mut text = format!("{}: {} records", done.path.display(), done.records);
    if done.resumed > 0 {
        text += &format!(", {} of them from before", done.resumed);
    }
    text.push('\n');
    for (level, why) in left_out {
        text += &format!("  left out: {level}: {why}\n");
    }
    print::out(&text)
}

extern "C" fn ask_to_stop(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// On an interrupt the record that is being taken is the last, and what a study needs on the way is cleared away.
fn stop_when_asked() -> anyhow::Result<()> {
    let action =
        SigAction::new(SigHandler::Handler(ask_to_stop), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler stores one number and does nothing else.
        unsafe { sigaction(signal, &action) }.context("signals")?;
    }
    Ok(())
}

pub fn report(args: &Report) -> anyhow::Result<i32> {
    let python = env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| "python3".into());
    let check = Command::new(&python).args(["-c", MISSING]).output();
    let found =
        check.with_context(|| format!("{} ({PYTHON_VARIABLE})", python.to_string_lossy()))?;
    if !found.status.success() {
        let words = String::from_utf8_lossy(&found.stderr);
        let last = words.lines().last().unwrap_or_default().to_string();
        anyhow::bail!(
            "{} lacks what a report needs ({last}); install the Python package as lorentz-time[report], or name a Python that \
             has it by {PYTHON_VARIABLE}",
            python.to_string_lossy()
        );
    }
    let mut words: Vec<OsString> = vec!["-m".into(), "lorentz.report".into(), "-o".into()];
    words.push(args.output.clone().into());
    for old in &args.against {
        words.extend(["--against".into(), old.clone()]);
    }
    if args.json {
        words.push("--json".into());
    }
    words.push("--".into());
    words.extend(args.runs.iter().cloned());
    Err(Command::new(&python).args(words).exec())
        .with_context(|| python.to_string_lossy().into_owned())
}
