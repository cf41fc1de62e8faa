//! The lines of `exec`: what failed in them, and where they stand.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;

use crate::plan::ExecLine;

/// A line of `exec` that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailedLine {
    /// The node.
    pub node: String,
    /// The file with the line.
    pub file: String,
    /// The line's number in the file, from 1.
    pub line: u64,
    /// The line.
    pub text: String,
    /// Its exit status, as a shell tells it.
    pub status: i32,
    /// The last line of the node's output since the failed line before it.
    pub output: String,
    /// Whether the line is the start of services that the node leaves out, because it lacks a program.
    pub left_out: bool,
    /// Words behind the output on the cause; empty for none.
    #[serde(skip)]
    pub note: String,
    /// The key of the node that has the line: exec or shutdown.
    #[serde(skip)]
    pub key: &'static str,
}

impl std::fmt::Display for FailedLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FailedLine { node, file, line, text, status, output, left_out, note, key } = self;
        if *left_out {
            return write!(f, "{file}:{line}: node {node}: {output}");
        }
        write!(f, "{file}:{line}: node {node}: {key}: {text}: exit status {status}")?;
        if !output.is_empty() {
            write!(f, ": {output}")?;
        }
        f.write_str(note)
    }
}

/// Status of a shell for a program that it does not find.
const NOT_FOUND: i32 = 127;

/// A reason why lines of published labs fail, and what to do.
struct Cause {
    /// Names of the programs that such a line calls; with a slash at the end, their directory.
    programs: &'static [&'static str],
    /// Parts of the output, one of which the line must have unless its program is not there.
    outputs: &'static [&'static str],
    advice: &'static str,
}

const CAUSES: [Cause; 6] = [
    Cause {
        programs: &["systemctl", "service", "invoke-rc.d", "/etc/init.d/"],
        outputs: &["systemd as init", "Failed to connect to bus", "unrecognized service", "unknown initscript", "could not be found"],
        advice: "; services are those of the node's image, and here none answers: give the node its image",
    },
    Cause {
        programs: &["ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovs-ctl"],
        outputs: &["database connection failed", "openvswitch"],
        advice: "; Open vSwitch is the image's, and needs the kernel's module openvswitch",
    },
    Cause {
        programs: &["brctl"],
        outputs: &[],
        advice: "; the node's files have no brctl: 'ip link add NAME type bridge' makes a bridge",
    },
    Cause {
        programs: &["tc"],
        outputs: &["qdisc kind is unknown"],
        advice: "; this kernel does not have that queueing discipline: 'lorentz link set' delays and loses frames",
    },
    Cause {
        programs: &["ip", "bridge"],
        outputs: &["Unknown device type", "add tunnel", "RTNETLINK answers: Operation not supported"],
        advice: "; this kernel does not have that kind of interface, or that setting of it",
    },
    Cause {
        programs: &["apk", "apt", "apt-get", "ash", "p4c", "simple_switch", "vtysh"],
        outputs: &[],
        advice: "; the program is the image's: give the node its image",
    },
];

/// Returns words on the cause of a failed line, if it is one of those that are common in published labs; else none.
fn advice(text: &str, status: i32, output: &str) -> &'static str {
    let words = || text.split(|c: char| c.is_whitespace() || ";&|()'\"".contains(c));
    let calls = |program: &str| match program.ends_with('/') {
        true => words().any(|word| word.starts_with(program)),
        false => words().any(|word| word.rsplit('/').next() == Some(program)),
    };
    let cause = CAUSES.iter().find(|cause| {
        (status == NOT_FOUND || cause.outputs.iter().any(|part| output.contains(part)))
            && cause.programs.iter().any(|program| calls(program))
    });
    cause.map_or("", |cause| cause.advice)
}

/// The beginning of a script's last line of output if the node leaves out the services that the script starts. Their
/// names and the reason follow.
pub(crate) const LEFT_OUT: &str = "lorentz: left out: ";
/// Prefix of a report of bash in a node's output.
const REPORT: &str = "lorentz: exec line ";

/// Returns the words that run `line` by `shell`, or by /bin/sh where the node does not have that shell.
pub(crate) fn words(shell: &str, line: &ExecLine) -> Vec<String> {
    if shell == "/bin/sh" {
        return vec![shell.into(), "-c".into(), line.text.clone()];
    }
    let is_bash = Path::new(shell).file_name().is_some_and(|name| name == "bash");
    let mut script = String::new();
    if is_bash && line.text.contains('\n') {
        // The script goes on after a command that fails, and bash reports the command's line. In the same line as the script's
        // first, so that numbers are right.
        script += &format!("trap 'echo \"{REPORT}$LINENO: exit status $?\" >&2' ERR; ");
    }
    script += &line.text;
    const CHOOSE: &str =
        "if command -v \"$1\" > /dev/null; then exec \"$1\" -c \"$2\"; fi; exec /bin/sh -c \"$3\"";
    ["/bin/sh", "-c", CHOOSE, "sh", shell, &script, &line.text].map(String::from).into()
}

/// A node's output, from where it ends before a line runs.
pub(crate) struct OutputMark<'a> {
    path: &'a Path,
    from: u64,
}

impl OutputMark<'_> {
    pub fn of(path: &Path) -> OutputMark<'_> {
        let from = std::fs::metadata(path).map_or(0, |file| file.len());
        OutputMark { path, from }
    }

    /// Returns what is written since, its last part where it is long.
    fn text(&self) -> String {
        const MAX_LEN: u64 = 64 * 1024;
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = std::fs::File::open(self.path)?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(self.from.max(end.saturating_sub(MAX_LEN))))?;
            let mut bytes = Vec::new();
            file.take(MAX_LEN).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// Returns what failed in `line`, which has ended with `status`: each line of a script once.
    pub fn failures(&self, node: &str, line: &ExecLine, status: i32) -> Vec<FailedLine> {
        let text = self.text();
        let mut last = "";
        let mut failures = Vec::new();
        let failed = |number: u64, status, output: &str| FailedLine {
            node: node.into(),
            file: line.file.clone(),
            line: line.line + number.saturating_sub(1),
            text: line.at(number).into(),
            status,
            output: output.into(),
            left_out: false,
            note: advice(line.at(number), status, output).into(),
            key: "exec",
        };
        for one in text.lines() {
            let report = one.strip_prefix(REPORT).and_then(|rest| {
                let (number, status) = rest.split_once(": exit status ")?;
                Some((number.parse().ok()?, status.parse().ok()?))
            });
            match report {
                // The output so far is of this line, and not of the next one that fails.
                Some((number, status)) => {
                    let one = failed(number, status, std::mem::take(&mut last));
                    // In a loop a line may fail again and again.
                    if failures.iter().all(|known: &FailedLine| known.line != one.line) {
                        failures.push(one);
                    }
                }
                None => last = one,
            }
        }
        match last.strip_prefix(LEFT_OUT).filter(|_| status != 0) {
            Some(what) => failures = vec![FailedLine { left_out: true, ..failed(1, status, what) }],
            None if failures.is_empty() && status != 0 => failures.push(failed(1, status, last)),
            None => {}
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(shell: &str, text: &str) -> Vec<(u64, String, i32, String)> {
        let failures = failures(shell, text);
        failures.into_iter().map(|one| (one.line, one.text, one.status, one.output)).collect()
    }

    fn failures(shell: &str, text: &str) -> Vec<FailedLine> {
        let line =
            ExecLine { text: text.into(), file: "pc1.startup".into(), line: 5, is_script: true };
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        std::fs::write(path, "of before\n").unwrap();
        let mark = OutputMark::of(path);
        let words = words(shell, &line);
        let log = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        let status = std::process::Command::new(&words[0])
            .args(&words[1..])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .status()
            .unwrap();
        mark.failures("pc1", &line, status.code().unwrap())
    }

    #[test]
    fn bash_goes_on_and_tells_which_lines_failed() {
        let script = "#!/bin/bash\necho one\n  (echo why; exit 3)\nif false; then :; fi\nfor x in {1..2}; do echo $x; done\nfalse\n:";
        let failed = |line, text: &str, status, output: &str| {
            (line, text.to_string(), status, output.to_string())
        };
        assert_eq!(
            run("bash", script),
            [failed(7, "(echo why; exit 3)", 3, "why"), failed(10, "false", 1, "2")]
        );
        assert_eq!(
            run("bash", "echo {a..b}; exit 4"),
            [failed(5, "echo {a..b}; exit 4", 4, "a b")]
        );
        assert_eq!(run("bash", "echo fine\necho too"), []);
        assert_eq!(
            run("bash", "for x in 3 4 5; do\n  (exit $x)\ndone\n:"),
            [failed(6, "(exit $x)", 3, "")]
        );
        assert_eq!(
            run("bash", "echo why; false\nfalse"),
            [failed(5, "echo why; false", 1, "why"), failed(6, "false", 1, "")]
        );
    }

    #[test]
    fn causes_that_are_common_in_labs_are_named() {
        for (text, status, output, part) in [
            ("systemctl start frr", 1, "Failed to connect to bus: Host is down", "none answers"),
            ("ip link add bond1 type bond", 2, "Error: Unknown device type.", "kind of interface"),
            ("ip tunnel add a mode ipip", 1, "add tunnel \"tunl0\" failed", "kind of interface"),
            ("service nosuch start", 1, "nosuch: unrecognized service", "none answers"),
            ("/etc/init.d/zebra start", 127, "/etc/init.d/zebra: No such file", "none answers"),
            ("ovs-vsctl add-br br0", 127, "ovs-vsctl: not found", "module openvswitch"),
            ("/usr/sbin/brctl addbr br0; true", 127, "brctl: not found", "type bridge"),
            ("tc qdisc add dev e root netem", 2, "Specified qdisc kind is unknown.", "link set"),
            ("sh -c 'apk add curl'", 127, "apk: not found", "the image's"),
        ] {
            assert!(advice(text, status, output).contains(part), "{text}");
        }
        for (text, status, output) in [
            ("systemctl start frr", 1, "frr: bad configuration"),
            ("echo service", 1, "no"),
            ("mybrctl", 127, "mybrctl: not found"),
        ] {
            assert_eq!(advice(text, status, output), "", "{text}");
        }
    }

    #[test]
    fn a_service_that_is_left_out_says_why() {
        let script = "# services: x\necho 'lorentz: left out: x: not installed: y'; exit 127";
        let [failed] = &failures("/bin/sh", script)[..] else { panic!() };
        assert!(failed.left_out && failed.output == "x: not installed: y", "{failed}");
        assert_eq!(failed.to_string(), "pc1.startup:5: node pc1: x: not installed: y");
        // A script that only says so is none.
        assert!(failures("bash", "echo 'lorentz: left out: x'").is_empty());
    }

    #[test]
    fn another_shell_tells_of_the_whole_script() {
        let failed =
            |text: &str, status, output: &str| [(5, text.to_string(), status, output.to_string())];
        assert_eq!(run("/bin/sh", "echo why\nexit 7"), failed("echo why", 7, "why"));
        assert_eq!(run("no-such-shell", "exit 7"), failed("exit 7", 7, ""));
    }
}
