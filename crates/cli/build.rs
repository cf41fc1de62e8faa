//! Links the `lorentz` command at a fixed address, as Go links runc and podman. In a position-independent executable the dynamic
//! linker writes 25,000 pointers into 114 pages before `main`, which took a third of the time of `lorentz --version`.
//!
//! Records the commit for `lorentz --version`: that of LORENTZ_COMMIT, which builds without a repository set, else git's.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-no-pie");
    println!("cargo:rerun-if-env-changed=LORENTZ_COMMIT");
    let given = std::env::var("LORENTZ_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| {
        // Git appends a line there at each commit and checkout.
        let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
        println!("cargo:rerun-if-changed={log}");
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo:rustc-env=LORENTZ_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Returns the line that a git command prints; `None` without git or a repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !line.is_empty()).then_some(line)
}
