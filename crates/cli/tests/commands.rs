//! The command from outside, on containers made here: this process is their monitor, and nothing runs inside.

use std::path::Path;
use std::process::Command;

use lorentz_container::{Container, MonitorKind, NewContainer, StateDir};
use lorentz_control::{ClockOptions, HostNow};
use serde_json::Value;

/// A state directory of its own.
struct Place {
    dir: tempfile::TempDir,
    state: StateDir,
}

/// The result of a command.
struct Outcome {
    status: i32,
    out: String,
    error: String,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path()).unwrap();
        Place { dir, state }
    }

    fn container(&self, name: &str, options: ClockOptions) -> Container {
        let command = ["sleep".into(), "100".into()];
        let new = NewContainer {
            name: Some(name),
            command: &command,
            ..NewContainer::monitored_by(MonitorKind::Run)
        };
        let settings = options.settings(&HostNow::read().unwrap()).unwrap();
        self.state.create(&new, &settings).unwrap()
    }

    fn lorentz(&self, words: &str) -> Outcome {
        lorentz(self.dir.path(), words)
    }

    /// A command that must succeed, and prints JSON.
    fn json(&self, words: &str) -> Value {
        let outcome = self.lorentz(words);
        assert_eq!((outcome.status, outcome.error.as_str()), (0, ""), "{words}");
        serde_json::from_str(&outcome.out).unwrap()
    }

    /// A command that must be refused as wrong input, in one line that begins so.
    fn refused(&self, words: &str, start: &str) {
        let outcome = self.lorentz(words);
        assert_eq!(outcome.status, 2, "{words}: {}", outcome.error);
        assert_eq!(outcome.out, "", "{words}");
        let line = outcome.error.strip_prefix("lorentz: ").unwrap();
        assert!(line.starts_with(start), "{words}\n  {line}  {start}");
        assert_eq!(line.find('\n'), Some(line.len() - 1), "{words}: {line}");
    }
}

fn lorentz(state: &Path, words: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lorentz"));
    let output = command
        .args(words.split_ascii_whitespace())
        .env("LORENTZ_STATE_DIR", state)
        .output()
        .unwrap();
    Outcome {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

fn frozen_at(at: &str) -> ClockOptions {
    ClockOptions { at: Some(at.parse().unwrap()), frozen: true, ..Default::default() }
}

fn nanos(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap()
}

#[test]
fn time_shows_the_clocks_beside_the_hosts() {
    let place = Place::new();
    place.container("web", frozen_at("2038-01-19T03:14:00Z"));
    let time = place.json("time web --json");
    assert_eq!(time["name"], "web");
    assert_eq!(time["state"], "frozen");
    assert_eq!(time["rate"], "1");
    assert_eq!(time["tdf"], "1");
    assert_eq!(time["mechanism"], "shim");
    assert_eq!(time["wall"], "2038-01-19T03:14:00Z");
    assert_eq!(time["monitor_alive"], true);
    assert_eq!(time["monitors"][0]["pid"], std::process::id());
    assert_eq!(time["monitors"][0]["kind"], "run");
    assert_eq!(time["pids"], Value::Array(Vec::new()));
    assert!(nanos(&time["host"], "monotonic_ns") >= nanos(&time, "monotonic_ns"));
    assert!(nanos(&time["host"], "boottime_ns") >= nanos(&time, "boottime_ns"));
    assert!(time["host"]["wall"].as_str().unwrap().ends_with('Z'));
    let text = place.lorentz("time web").out;
    for part in
        ["web", "sleep 100", "shim", "frozen", "1 (TDF 1)", "2038-01-19T03:14:00Z", "boot time"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_container_is_found_by_its_monitors_number() {
    let place = Place::new();
    place.container("web", ClockOptions::default());
    let words = format!("time {} --json", std::process::id());
    assert_eq!(place.json(&words)["name"], "web");
}

#[test]
fn ps_lists_all() {
    let place = Place::new();
    assert_eq!(place.json("ps --json"), Value::Array(Vec::new()));
    place.container("web", ClockOptions { rate: "60x".parse().ok(), ..Default::default() });
    place.container("db", frozen_at("@5"));
    let list = place.json("ps --json");
    let states: Vec<_> =
        list.as_array().unwrap().iter().map(|c| (&c["name"], &c["state"])).collect();
    assert_eq!(
        format!("{states:?}"),
        r#"[(String("db"), String("frozen")), (String("web"), String("running"))]"#
    );
    let text = place.lorentz("ps").out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("NAME"));
    assert!(lines[1].starts_with("db    frozen   1     1970-01-01T00:00:05Z"), "{text}");
    assert!(lines[2].contains("sleep 100"), "{text}");
}

#[test]
fn changes_are_made_and_shown() {
    let place = Place::new();
    place.container("web", ClockOptions::default());
    let dilated = place.json("dilate web --tdf 10 --json");
    assert_eq!((&dilated["rate"], &dilated["tdf"]), (&"0.1".into(), &"10".into()));
    assert_eq!(dilated["followed"]["waits"], 0);
    for _ in 0..2 {
        assert_eq!(place.json("freeze web --json")["state"], "frozen");
    }
    for _ in 0..2 {
        let running = place.json("unfreeze web --json");
        assert_eq!((&running["state"], &running["rate"]), (&"running".into(), &"0.1".into()));
    }
    assert_eq!(place.lorentz("dilate web --rate 2").out, "");
    assert_eq!(place.json("time web --json")["rate"], "2");
}

#[test]
fn leaps_take_all_clocks_and_steps_one() {
    let place = Place::new();
    place.container("web", frozen_at("2030-01-01"));
    let start = place.json("time web --json");
    let leapt = place.json("leap web --by 1d --json");
    assert_eq!(leapt["wall"], "2030-01-02T00:00:00Z");
    let day = 86_400_000_000_000;
    assert_eq!(nanos(&leapt, "monotonic_ns") - nanos(&start, "monotonic_ns"), day);
    assert_eq!(nanos(&leapt, "boottime_ns") - nanos(&start, "boottime_ns"), day);
    assert_eq!(place.json("leap web --to 2030-01-03 --json")["wall"], "2030-01-03T00:00:00Z");

    let stepped = place.json("step web --by -2d --json");
    assert_eq!(stepped["wall"], "2030-01-01T00:00:00Z");
    assert_eq!(nanos(&stepped, "monotonic_ns") - nanos(&start, "monotonic_ns"), 2 * day);
    assert_eq!(place.json("step web --to @77 --json")["wall"], "1970-01-01T00:01:17Z");

    place.container("other", frozen_at("2031-01-01"));
    assert_eq!(place.json("leap web --like other --json")["wall"], "2031-01-01T00:00:00Z");
}

#[test]
fn wrong_input_is_refused_in_one_line() {
    let place = Place::new();
    place.container("web", frozen_at("2030-01-01"));
    place.container("old", frozen_at("2029-01-01"));
    let me = std::process::id();
    for (words, start) in [
        ("time nosuch", "nosuch: no such container; expected"),
        ("time ../web", "../web: no such container; expected"),
        ("freeze 4194305", "4194305: no such process; expected"),
        ("freeze 1", "1: this process is not in virtual time; expected"),
        ("dilate web --rate 0", "--rate 0: must be above 0; expected"),
        ("dilate nosuch --rate 1", "nosuch: no such container"),
        ("leap web --by -1s", "--by -1s: leaps go forward; expected a duration above 0"),
        ("leap web --to 2029-01-01", "--to 2029-01-01T00:00:00Z: leaps go forward; it is later"),
        ("leap web --like old", "--like 2029-01-01T00:00:00Z: leaps go forward; it is later"),
        ("leap web --like nosuch", "--like nosuch: no such container"),
        ("leap web --by 291y", "--by 106215d: would take the container's clocks beyond 290 years"),
        ("step web --by -61y", "--by -22265d: would make the container's wall clock negative"),
        ("step web --to 1969-01-01", "--to 1969-01-01T00:00:00Z: a wall clock cannot show"),
        ("run --name web true", "--name web: in use by a running container"),
        ("run --name a/b true", "--name \"a/b\": not a container's name; expected"),
        ("run --at 2030-01-01 --offset 1h true", "--at and --offset exclude each other"),
        ("run --rate 2 --tdf 2 true", "--rate and --tdf exclude each other"),
        ("run --clock web --rate 2 true", "--clock and --rate exclude each other"),
        ("run --clock nosuch true", "--clock nosuch: no such container"),
        (
            "run --offset -100y true",
            "--offset -36500d: would make the container's wall clock negative",
        ),
        ("run --monotonic -100y true", "--monotonic -36500d: would make the container's monotonic"),
        ("run --boottime -100y true", "--boottime -36500d: would make the container's boot time"),
        ("exec nosuch true", "nosuch: no such container"),
        ("attach 4194305", "PID 4194305: no such process; expected"),
        ("attach 1x", "PID|ENGINE:NAME 1x: expected the number"),
        ("rm nosuch", "nosuch: no such container"),
        ("rm web", &format!("web: still running under its monitor, process {me}")),
    ] {
        place.refused(words, start);
    }
    assert_eq!(place.json("ps --json").as_array().unwrap().len(), 2);
}

#[test]
fn the_state_directory_must_be_ones_own() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.dir.path(), open).unwrap();
    place.refused("ps", "state directory ");
}

#[test]
fn an_attach_to_itself_and_to_what_is_inside_is_refused() {
    let place = Place::new();
    let shell = format!("exec {} attach $$", env!("CARGO_BIN_EXE_lorentz"));
    let mut command = Command::new("sh");
    let output =
        command.args(["-c", &shell]).env("LORENTZ_STATE_DIR", place.dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("is this very command; expected another process"), "{error}");
}

#[test]
fn doctor_tells_the_same_in_both_forms() {
    let place = Place::new();
    let text = place.lorentz("doctor").out;
    let outcome = place.lorentz("doctor --json");
    let json: Value = serde_json::from_str(&outcome.out).unwrap();
    for feature in json["features"].as_array().unwrap() {
        assert!(text.contains(feature["name"].as_str().unwrap()));
        assert!(feature["available"].is_boolean());
    }
    assert!(text.contains("stays real, or is refused"));
    assert!(!json["not_virtual_yet"].as_array().unwrap().is_empty());
}

#[test]
fn nothing_is_left_of_a_command_that_only_looks() {
    let place = Place::new();
    let state = place.dir.path().join("state");
    assert_eq!(lorentz(&state, "ps").status, 0);
    assert_eq!(lorentz(&state, "time web").status, 2);
    assert!(!state.exists());
}

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::new();
    for words in ["--help", "--version", "run --help", "leap -h"] {
        let outcome = place.lorentz(words);
        assert_eq!((outcome.status, outcome.error.as_str()), (0, ""), "{words}");
        assert!(!outcome.out.is_empty(), "{words}");
    }
    let help = place.lorentz("run --help").out;
    for flag in [
        "--at",
        "--offset",
        "--rate",
        "--tdf",
        "--clock",
        "--monotonic",
        "--boottime",
        "--frozen",
        "--cpu-clocks",
        "--file-times",
        "--trap-tsc",
        "--name",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
}

#[test]
fn the_version_names_what_must_agree() {
    let place = Place::new();
    let short = place.lorentz("-V").out;
    assert_eq!(short, format!("lorentz {}\n", env!("CARGO_PKG_VERSION")));
    let long = place.lorentz("--version").out;
    let labels = ["commit", "page layout", "shim layout", "shim image"];
    let lines: Vec<&str> = long.strip_prefix(&short).unwrap().lines().collect();
    assert_eq!(lines.len(), labels.len(), "{long}");
    for (line, label) in lines.iter().zip(labels) {
        assert!(line.strip_prefix(label).is_some_and(|value| !value.trim().is_empty()), "{long}");
    }
}

#[test]
fn each_verb_that_help_lists_has_a_man_page() {
    let place = Place::new();
    let dir = tempfile::tempdir().unwrap();
    let outcome = place.lorentz(&format!("generate man {}", dir.path().display()));
    assert_eq!((outcome.status, outcome.error.as_str()), (0, ""));
    let pages = std::fs::read_dir(dir.path()).unwrap();
    let pages: Vec<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let help = place.lorentz("--help").out;
    let verbs = help.lines().filter(|line| {
        line.starts_with("  ") && !line.starts_with("   ") && !line.starts_with("  -")
    });
    let verbs: Vec<&str> = verbs.map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(verbs.contains(&"run"), "{help}");
    for verb in verbs {
        assert!(pages.contains(&format!("lorentz-{verb}.1")), "{verb}: {pages:?}");
    }
    for page in ["lorentz.1", "lorentz-link-add.1", "lorentz-experiment-create.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    for hidden in ["receive", "generate", "help"] {
        assert!(!pages.iter().any(|name| name.contains(hidden)), "{hidden}: {pages:?}");
    }
    let run = std::fs::read_to_string(dir.path().join("lorentz-run.1")).unwrap();
    for part in ["\n.SH NAME\nlorentz\\-run", "\\fB\\-\\-at\\fR", "127  command not found"] {
        assert!(run.contains(part), "{part} in\n{run}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    let outcome = Place::new().lorentz("generate man /nosuch");
    assert_eq!(outcome.status, 1);
    assert!(outcome.error.starts_with("lorentz: /nosuch: "), "{}", outcome.error);
}

#[test]
fn each_shell_has_a_function_that_asks_the_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let outcome = place.lorentz(&format!("generate complete-{shell}"));
        assert_eq!((outcome.status, outcome.error.as_str()), (0, ""), "{shell}");
        for word in ["LORENTZ_COMPLETE", "lorentz"] {
            assert!(outcome.out.contains(word), "{word} for {shell}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    let place = Place::new();
    let shell = format!(
        "{} run --help | true; {} ps >&-",
        env!("CARGO_BIN_EXE_lorentz"),
        env!("CARGO_BIN_EXE_lorentz")
    );
    let mut command = Command::new("sh");
    let output =
        command.args(["-c", &shell]).env("LORENTZ_STATE_DIR", place.dir.path()).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
