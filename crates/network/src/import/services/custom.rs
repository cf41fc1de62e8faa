//! Services whose commands the scenario has itself.

use serde_saphyr::Spanned;

use super::script::{with_input, Script};
use super::wanted::{Files, Host, Wanted};
use crate::import::draft::Draft;

/// Directory for files of a scenario that are named without one. Commands run in it.
const FOLDER: &str = "/run/services";

/// Whether the scenario has the commands of a service, and all scripts that they run. Where one is missing, the
/// emulator would have made it. A service that `is_program` does not run its files by itself.
pub(super) fn has_own_commands(wanted: &Wanted, is_program: bool) -> bool {
    match &wanted.startups {
        Some(lines) => {
            let is_there = |line: &Spanned<String>| match script_of(&line.value) {
                Some((_, file)) => wanted.files.contains_key(file),
                None => true,
            };
            lines.iter().all(is_there)
        }
        None => !is_program && !wanted.files.is_empty(),
    }
}

/// Returns the shell and the file of a command `sh FILE ...`.
fn script_of(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let shell = words.next().filter(|one| ["sh", "bash", "/bin/sh", "/bin/bash"].contains(one))?;
    words.next().filter(|file| !file.starts_with('-')).map(|file| (shell, file))
}

/// Has `node` run the commands of the service with its files.
///
/// Where a command is a shell that runs one of the files, the file's text is in the line of `exec`: then the
/// service writes nothing, and needs no private node.
pub(super) fn run(draft: &mut Draft, node: &str, host: &Host, wanted: Wanted) {
    let Wanted { at, name, files, startups } = wanted;
    // The default of CORE's services that are scripts.
    let is_script = |path: &str| path.ends_with(".sh") && name != "UserDefined";
    let lines = startups.unwrap_or_else(|| {
        let scripts = files.iter().filter(|(path, _)| is_script(path));
        scripts
            .map(|(path, text)| Spanned { value: format!("bash {path}"), ..text.clone() })
            .collect()
    });
    let mut used = Vec::new();
    let inlined: Vec<Spanned<String>> = lines
        .iter()
        .map(|line| Spanned { value: with_file(&line.value, &files, &mut used), ..line.clone() })
        .collect();
    let exec = if files.keys().all(|path| used.contains(path)) {
        inlined
    } else if lines.is_empty() {
        for path in files.keys() {
            let what = format!("node {node}: service {name}: file {path}: no command runs it");
            draft.leave_out(at, what);
        }
        Vec::new()
    } else {
        let mut script = Script::new(host, &name.replace(|c: char| !c.is_alphanumeric(), "-"), &[]);
        script.line(&format!("mkdir -p {FOLDER} && cd {FOLDER}"));
        files.iter().for_each(|(path, text)| script.file(path, &text.value));
        lines.iter().for_each(|line| script.line(&line.value));
        vec![at.of(script.text())]
    };
    if let Some(node) = draft.node(node) {
        node.exec.extend(exec);
    }
}

/// Returns a command that runs a file, `sh FILE`, with the content of the file in it.
fn with_file(line: &str, files: &Files, used: &mut Vec<String>) -> String {
    let found = script_of(line).filter(|_| line.split_whitespace().count() == 2);
    let Some((shell, file)) = found else { return line.to_string() };
    let Some(text) = files.get(file) else { return line.to_string() };
    used.push(file.to_string());
    with_input(&format!("{shell} -s"), &text.value)
}
