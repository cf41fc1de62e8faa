//! Scripts that start services.

use super::wanted::{Files, Host};
use crate::exec::LEFT_OUT;

/// Directories in which Debian has servers, beside those of PATH.
const DIRECTORIES: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/lib/frr";

/// A script for /bin/sh that starts services of a node.
///
/// It begins with checks. In a node that is not private it would write to the host: there /proc/sys/kernel can be
/// written, in a private node it cannot. Where a check fails, the script tells so in a line that begins with
/// [`LEFT_OUT`], with status 127.
pub(super) struct Script {
    text: String,
    /// Files of the scenario that [`Self::file`] has not met yet.
    given: Files,
}

impl Script {
    /// `services` are the names for messages; each of `programs` must be there.
    pub fn new(host: &Host, services: &str, programs: &[&str]) -> Script {
        let mut script =
            Script { text: format!("# services: {services}\n"), given: host.files.clone() };
        script.line(&format!("PATH=$PATH:{DIRECTORIES}"));
        script.line(&format!("leave_out() {{ echo \"{LEFT_OUT}{services}: $1\"; exit 127; }}"));
        script
            .line("if [ -w /proc/sys/kernel/hostname ]; then leave_out 'needs a private node'; fi");
        if !programs.is_empty() {
            let programs = programs.join(" ");
            script.line("missing=");
            script.line(&format!(
                "for one in {programs}; do command -v $one > /dev/null || missing=\"$missing $one\"; done"
            ));
            script.line("if [ -n \"$missing\" ]; then leave_out \"not installed:$missing\"; fi");
        }
        script
    }

    /// Adds lines.
    pub fn line(&mut self, line: &str) {
        self.text += line.trim_end_matches('\n');
        self.text.push('\n');
    }

    /// Adds a file, and the directory in which it is. The scenario's file of that name replaces `content`.
    pub fn file(&mut self, path: &str, content: &str) {
        let name = |path: &str| path.rsplit('/').next().map(str::to_string);
        let given = self.given.iter().find(|(given, _)| name(given) == name(path));
        let given = given.map(|(path, text)| (path.clone(), text.value.clone()));
        if let Some((path, _)) = &given {
            self.given.remove(path);
        }
        let content = given.as_ref().map_or(content, |(_, text)| text);
        if let Some((folder, _)) = path.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) {
            self.line(&format!("mkdir -p {}", quoted(folder)));
        }
        self.line(&with_input(&format!("cat > {}", quoted(path)), content));
    }

    /// Returns the paths of the scenario's files that are not in the script.
    pub fn unused(&self) -> Vec<String> {
        self.given.keys().cloned().collect()
    }

    /// Returns the script.
    pub fn text(self) -> String {
        self.text.trim_end_matches('\n').to_string()
    }
}

/// Returns a command for the shell that reads `text` from its standard input.
pub(super) fn with_input(command: &str, text: &str) -> String {
    let text = text.trim_matches('\n');
    let mut end = "END-OF-FILE".to_string();
    while text.lines().any(|line| line == end) {
        end.push('-');
    }
    format!("{command} <<'{end}'\n{text}\n{end}")
}

/// Returns `word` as one word for the shell. The shell cannot have a zero byte in a word.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(&word.replace('\0', "")).map(|word| word.into_owned()).unwrap_or_default()
}
