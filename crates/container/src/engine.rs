//! Containers of other engines, by the names that their engines give them: `docker:web`, `podman:web`, `lxc:web`.

use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;

/// An engine whose containers Lorentz can name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Engine {
    Docker,
    Podman,
    Lxc,
}

impl Engine {
    const ALL: [Engine; 3] = [Engine::Podman, Engine::Docker, Engine::Lxc];

    fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Podman => "podman",
            Engine::Lxc => "lxc",
        }
    }

    /// Returns the command that prints the process id of a container's first process.
    fn command(self, container: &str) -> Command {
        let mut command = Command::new(match self {
            Engine::Lxc => "lxc-info",
            other => other.name(),
        });
        match self {
            Engine::Lxc => {
                if let Some((directory, _)) = container.rsplit_once('/') {
                    command.args(["--lxcpath", directory]);
                }
                command.args(["--name", last(container), "--pid", "--no-humanize"])
            }
            _ => {
                let format = ["container", "inspect", "--format", "{{.State.Pid}}", "--"];
                command.args(format).arg(container)
            }
        };
        command
    }
}

/// Returns the part behind the last slash.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A container of another engine. LXC's may have its directory before its name: `lxc:/srv/lxc/web`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignContainer {
    engine: Engine,
    name: String,
}

impl ForeignContainer {
    /// Returns the first process of the container that one of the engines knows as `name`.
    pub fn first_process_named(name: &str) -> Option<u32> {
        let of = |engine| ForeignContainer { engine, name: name.to_string() };
        Engine::ALL.into_iter().find_map(|engine| of(engine).first_process().ok())
    }

    /// Its name, without its engine and directory.
    pub fn name(&self) -> &str {
        last(&self.name)
    }

    /// Returns the process id of its first process.
    ///
    /// # Errors
    ///
    /// Why there is none, with the engine's words.
    pub fn first_process(&self) -> Result<u32, String> {
        let mut command = self.engine.command(&self.name);
        let done = command.stdin(Stdio::null()).output();
        let program = command.get_program().to_string_lossy();
        let done = done.map_err(|error| format!("{self}: {program}: {error}"))?;
        let words = String::from_utf8_lossy(&done.stderr);
        let last = words.lines().last().unwrap_or_default();
        let pid = String::from_utf8_lossy(&done.stdout).trim().parse().ok();
        // A container that does not run has the process id 0, or none.
        match pid.filter(|&pid| done.status.success() && pid > 0) {
            Some(pid) => Ok(pid),
            None if last.is_empty() => Err(format!("{self}: does not run")),
            None => Err(format!("{self}: {last}")),
        }
    }
}

impl fmt::Display for ForeignContainer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.engine.name(), self.name)
    }
}

impl FromStr for ForeignContainer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ForeignContainer, &'static str> {
        const EXPECTED: &str = "expected docker:NAME, podman:NAME or lxc:NAME";
        let (engine, name) = text.split_once(':').ok_or(EXPECTED)?;
        let engine = Engine::ALL.into_iter().find(|one| one.name() == engine).ok_or(EXPECTED)?;
        let has_directory = name.contains('/');
        if last(name).is_empty()
            || last(name).starts_with('-')
            || (has_directory && (engine != Engine::Lxc || !name.starts_with('/')))
        {
            return Err(EXPECTED);
        }
        Ok(ForeignContainer { engine, name: name.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_engine() {
        for text in ["docker:web", "podman:0123abc", "lxc:node-1"] {
            assert_eq!(text.parse::<ForeignContainer>().unwrap().to_string(), text);
        }
        assert_eq!("lxc:/srv/lxc/web".parse::<ForeignContainer>().unwrap().name(), "web");
        for wrong in ["web", "docker:", "rkt:web", "lxc:--all", "lxc:a/web", "docker:/a/web"] {
            assert!(wrong.parse::<ForeignContainer>().is_err(), "{wrong}");
        }
    }
}
