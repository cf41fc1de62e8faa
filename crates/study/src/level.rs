//! Levels: the command that runs a program at a level, and the proof that the program is there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::named::named;
use crate::protocol::{Greeting, Nanos};
use crate::root_file_system::{RootFileSystem, PROBE};

/// A way to run the measuring program.
///
/// `Baseline`, `Namespace` and `Container` are those of *The Cost of Time Virtualization in Linux Containers*, section IV.
/// Some of the others are in that paper's future work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// The host while no other level runs. It stands for the patch set's column of that name, which is of a kernel without
    /// time namespaces.
    Before,
    /// The host.
    Baseline,
    /// The host a second time. A difference from `Baseline` is noise.
    Control,
    /// A time namespace alone.
    Namespace,
    /// All eight namespaces.
    Container,
    /// The same on an overlay: a layer for writes in memory, over the same files.
    ContainerOverlay,
    /// Virtual time at rate 1.
    Lorentz,
    /// A container of `lorentz run --rootfs` at rate 1.
    LorentzContainer,
    /// A container of docker, in real time.
    Docker,
    /// A container of podman, in real time.
    Podman,
    /// A container of runc, in real time.
    Runc,
    /// libfaketime, preloaded, at rate 1.
    Libfaketime,
}

named!(Level, "level", {
    Before = "before",
    Baseline = "baseline",
    Control = "control",
    Namespace = "namespace",
    Container = "container",
    ContainerOverlay = "container-overlay",
    Lorentz = "lorentz",
    LorentzContainer = "lorentz-container",
    Docker = "docker",
    Podman = "podman",
    Runc = "runc",
    Libfaketime = "libfaketime",
});

/// Paths of our own programs that a study runs.
#[derive(Clone, Debug)]
pub struct Tools {
    /// `lorentz`.
    pub lorentz: PathBuf,
    /// `lorentz-probe`.
    pub probe: PathBuf,
}

/// Offset of CLOCK_MONOTONIC and CLOCK_BOOTTIME in a time namespace, seconds.
const OFFSET_SECONDS: i64 = 100_000;
/// Offset of a virtual wall clock, days.
const OFFSET_DAYS: i64 = 1;
const SECOND: i64 = 1_000_000_000;
/// Tolerance of a proof, ns. The host's clocks are read before the level starts, and that start may take so long.
const TOLERANCE: i64 = 1_000 * SECOND;
const ALL_NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
/// Namespaces of a container that shares the host's users, clocks and control groups.
const USUAL_NAMESPACES: [&str; 5] = ["mnt", "pid", "net", "ipc", "uts"];
/// The beginning of a command in all eight namespaces.
const UNSHARE: [&str; 12] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
    "--time",
    "--fork",
    "--kill-child",
];
/// Runs a program on an overlay over its root file system: sh -c SCRIPT sh PLACE ROOT PROGRAM CPU. The mounts end with their
/// namespace.
const ON_AN_OVERLAY: &str = r#"set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/merged"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/merged"
mount -t proc proc "$1/merged/proc"
exec chroot "$1/merged" "$3" "$4""#;

/// The clocks and namespaces of a program that is at a level.
struct Proof {
    wall_ahead: i64,
    monotonic_ahead: i64,
    own_namespaces: &'static [&'static str],
    on_overlay: bool,
}

impl Level {
    /// Returns whether the level is measured before any other level starts.
    pub fn is_alone(self) -> bool {
        self == Level::Before
    }

    /// Returns whether the level has a root file system of its own.
    pub fn has_root(self) -> bool {
        matches!(
            self,
            Level::Container
                | Level::ContainerOverlay
                | Level::LorentzContainer
                | Level::Docker
                | Level::Podman
                | Level::Runc
        )
    }

    /// Returns the command that runs the measuring program on processor `cpu`. Files for that command go to `folder`.
    ///
    /// # Errors
    ///
    /// A file in `folder` could not be written, or docker's image could not be made, or `runc spec` failed.
    pub fn command(
        self,
        tools: &Tools,
        root: &RootFileSystem,
        cpu: usize,
        folder: &Path,
    ) -> std::io::Result<Command> {
        let mut words: Vec<std::ffi::OsString> = Vec::new();
        let mut say = |text: &[&str]| words.extend(text.iter().map(Into::into));
        let ahead = OFFSET_SECONDS.to_string();
        let clocks = ["--monotonic", &ahead, "--boottime", &ahead];
        let days = format!("+{OFFSET_DAYS}d");
        let virtual_time = ["run", "--offset", &days, "--rate", "1"];
        match self {
            Level::Before | Level::Baseline | Level::Control => {}
            Level::Namespace => {
                say(&["unshare", "--time", "--fork", "--kill-child"]);
                say(&clocks);
                say(&["--"]);
            }
            Level::Container => {
                say(&UNSHARE);
                say(&["--mount-proc"]);
                say(&clocks);
                words.extend(["--root".into(), root.path().into(), "--".into()]);
            }
            Level::ContainerOverlay => {
                let place = folder.join("overlay");
                std::fs::create_dir_all(&place)?;
                say(&UNSHARE);
                say(&clocks);
                say(&["--", "sh", "-c", ON_AN_OVERLAY, "sh"]);
                words.extend([place.into(), root.path().into()]);
            }
            Level::Lorentz => {
                words.push(tools.lorentz.clone().into());
                words.extend(virtual_time.map(Into::into));
                words.push("--".into());
            }
            Level::LorentzContainer => {
                words.push(tools.lorentz.clone().into());
                words.extend(virtual_time.map(Into::into));
                words.extend(["--rootfs".into(), root.path().into(), "--".into()]);
            }
            Level::Docker => {
                say(&[
                    "docker",
                    "run",
                    "--rm",
                    "--interactive",
                    "--network",
                    "none",
                    root.docker_image()?,
                ]);
            }
            Level::Podman => {
                // Podman runs runc here: a difference from the level `Runc` is then the cost of podman.
                say(&["podman", "--runtime", "runc", "run", "--rm", "--interactive"]);
                say(&["--network", "none"]);
                // The usual limits. Podman's defaults are higher than a machine without privileges allows.
                say(&["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
                words.extend(["--rootfs".into(), root.path().into()]);
            }
            Level::Runc => return root.runc(cpu, folder),
            Level::Libfaketime => say(&["faketime", "-f", &days]),
        }
        let probe = if self.has_root() { PROBE.into() } else { tools.probe.clone().into() };
        words.push(probe);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(cpu.to_string());
        Ok(command)
    }

    fn proof(self) -> Proof {
        let wall = OFFSET_DAYS * 86_400 * SECOND;
        let (wall_ahead, monotonic_ahead, own_namespaces): (_, _, &[&str]) = match self {
            Level::Before | Level::Baseline | Level::Control => (0, 0, &[]),
            Level::Namespace => (0, OFFSET_SECONDS * SECOND, &["time"]),
            Level::Container | Level::ContainerOverlay => {
                (0, OFFSET_SECONDS * SECOND, &ALL_NAMESPACES)
            }
            Level::Lorentz | Level::Libfaketime => (wall, 0, &[]),
            Level::LorentzContainer => (wall, 0, &["mnt", "pid"]),
            Level::Docker | Level::Podman | Level::Runc => (0, 0, &USUAL_NAMESPACES),
        };
        let on_overlay = self == Level::ContainerOverlay;
        Proof { wall_ahead, monotonic_ahead, own_namespaces, on_overlay }
    }

    /// Checks by its clocks and namespaces that a program is at this level. `inside` is of that program, `host` of the
    /// host shortly before.
    ///
    /// # Errors
    ///
    /// Names the clock, namespace or file system that is wrong, and the expected one.
    pub fn prove(self, host: &Greeting, inside: &Greeting) -> Result<(), String> {
        let proof = self.proof();
        let checks = [
            ("the wall clock", host.wall, inside.wall, proof.wall_ahead),
            ("CLOCK_MONOTONIC", host.monotonic, inside.monotonic, proof.monotonic_ahead),
            ("CLOCK_BOOTTIME", host.boottime, inside.boottime, proof.monotonic_ahead),
        ];
        for (what, Nanos(outside), Nanos(inside), ahead) in checks {
            // libfaketime may move these clocks too. Virtual time at rate 1 must not.
            if self == Level::Libfaketime && what != "the wall clock" {
                continue;
            }
            let off = inside - outside;
            if (off - ahead).abs() > TOLERANCE {
                let (off, ahead) = (off / SECOND, ahead / SECOND);
                return Err(format!("{what} is {off} s ahead of the host's; expected {ahead} s"));
            }
        }
        for name in proof.own_namespaces {
            match (host.namespaces.get(*name), inside.namespaces.get(*name)) {
                (Some(outside), Some(inside)) if outside != inside => {}
                (_, None) => return Err(format!("its {name} namespace cannot be seen")),
                _ => return Err(format!("its {name} namespace is the host's")),
            }
        }
        if proof.on_overlay && !inside.on_overlay {
            return Err("its root is not on an overlay".to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Named;

    fn seen(wall: i64, monotonic: i64, namespaces: &str) -> Greeting {
        let names = ALL_NAMESPACES.iter().map(|name| (name.to_string(), namespaces.to_string()));
        Greeting {
            wall: Nanos(wall * SECOND),
            monotonic: Nanos(monotonic * SECOND),
            boottime: Nanos(monotonic * SECOND),
            namespaces: names.collect(),
            on_overlay: false,
        }
    }

    #[test]
    fn a_level_that_changes_nothing_is_the_host_alone() {
        let host = seen(1_000_000, 5_000, "a");
        let later = seen(1_000_002, 5_002, "a");
        for level in Level::ALL {
            let unchanged = matches!(level, Level::Before | Level::Baseline | Level::Control);
            assert_eq!(level.prove(&host, &later).is_ok(), unchanged, "{level:?}");
        }
    }

    #[test]
    fn each_level_shows_its_own_offset() {
        let host = seen(1_000_000, 5_000, "a");
        let shifted = seen(1_000_000, 5_000 + OFFSET_SECONDS, "b");
        assert_eq!(Level::Namespace.prove(&host, &shifted), Ok(()));
        assert_eq!(Level::Container.prove(&host, &shifted), Ok(()));
        let why = Level::ContainerOverlay.prove(&host, &shifted).unwrap_err();
        assert_eq!(why, "its root is not on an overlay");
        let layered = Greeting { on_overlay: true, ..shifted };
        assert_eq!(Level::ContainerOverlay.prove(&host, &layered), Ok(()));
        let another_day = seen(1_000_000 + 86_400, 5_000, "b");
        assert_eq!(Level::Lorentz.prove(&host, &another_day), Ok(()));
        assert_eq!(Level::Libfaketime.prove(&host, &another_day), Ok(()));
        let why = Level::Namespace.prove(&host, &another_day).unwrap_err();
        assert!(why.contains("the wall clock is 86400 s ahead"), "{why}");
        let elsewhere = seen(1_000_000, 5_000, "b");
        for level in [Level::Docker, Level::Podman, Level::Runc] {
            assert_eq!(level.prove(&host, &elsewhere), Ok(()));
        }
    }
}
