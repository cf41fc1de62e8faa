//! Containers with a root file system of their own, for `lorentz run --rootfs` and `--image`. This module makes the bundle for the
//! OCI runtime, and finds that runtime.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{bail, Context};
use lorentz_control::processes::{self, Process};
use lorentz_inject::limits;
use nix::mount::{umount2, MntFlags};
use nix::unistd::{eaccess, AccessFlags};
use serde_json::{json, Value};

use crate::image;
use crate::layer::{overlay, own_mounts};
use crate::state::{effective_user, STATE_DIR_VARIABLE};
use crate::{Container, StateError};

/// The OCI runtime.
const RUNTIME: &str = "lorentz-runtime";
/// The directory where the runtime keeps its containers.
const DEFAULT_ROOT: &str = "/run/lorentz-runtime";
/// The environment variable with the user's own directory. The runtime keeps its containers below it if `DEFAULT_ROOT` is not
/// writable, as for root in a user namespace.
const USER_DIR_VARIABLE: &str = "XDG_RUNTIME_DIR";
/// The runtime's directory below a state directory that the user named.
const BELOW_STATE: &str = ".runtime";
/// The file of a bundle with the name of the image that is mounted for it.
const IMAGE_RECORD: &str = "image";
/// The file of a bundle with the process that makes it, and becomes the runtime: process id, start time, the runtime's directory.
const MAKER: &str = "maker";
/// A bundle that does not have its record yet is named after its maker: this, process id, start time.
const DRAFT: &str = ".";
/// The directory of bundles, below the runtime's directory.
const BUNDLES: &str = ".bundles";
/// Capabilities of programs that run as root in a container, unless the bundle says otherwise. They are those that engines give.
const CAPABILITIES: [&str; 11] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The annotation by which a bundle's first process executes no program, and only keeps the namespaces for others: "true".
pub const IDLE_ANNOTATION: &str = "lorentz-idle";
/// The annotation by which programs get those of the capabilities they ask for that they may have, where capset(2) would refuse all:
/// "true".
pub const NARROW_CAPSET_ANNOTATION: &str = "lorentz-narrow-capset";

/// Returns the directory where the OCI runtime keeps its containers by default.
pub fn runtime_root() -> PathBuf {
    let named = |variable| env::var_os(variable).filter(|value| !value.is_empty());
    let root = Path::new(DEFAULT_ROOT);
    let may_write = |path: &Path| eaccess(path, AccessFlags::W_OK).is_ok();
    match (named(STATE_DIR_VARIABLE), named(USER_DIR_VARIABLE)) {
        (Some(state), _) => Path::new(&state).join(BELOW_STATE),
        (None, Some(users)) if !may_write(root) && !root.parent().is_some_and(may_write) => {
            Path::new(&users).join(RUNTIME)
        }
        _ => root.to_path_buf(),
    }
}

/// Returns a command that starts the OCI runtime, with its directory. The runtime lies beside this program or in PATH.
pub fn runtime(root: &Path) -> Command {
    let beside = env::current_exe().ok().map(|own| own.with_file_name(RUNTIME));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| RUNTIME.into());
    let mut command = Command::new(program);
    command.arg("--root").arg(root);
    // SAFETY: the child makes only system calls.
    unsafe {
        command.pre_exec(|| {
            limits::restore();
            Ok(())
        });
    }
    command
}

impl Container {
    /// Returns the OCI runtime's command `verb` for this container. `None` if no OCI runtime made it.
    ///
    /// # Errors
    ///
    /// If the runtime's own directory of the container does not exist: this command may have another root directory.
    pub fn runtime_there(&self, verb: &str) -> Result<Option<Command>, StateError> {
        match &self.record().bundle {
            Some(bundle) if !bundle.root.join(&bundle.id).exists() => {
                let dir = bundle.root.join(&bundle.id);
                Err(StateError::RuntimeElsewhere { name: self.name().to_string(), dir })
            }
            _ => Ok(self.runtime(verb)),
        }
    }

    /// As [`Container::runtime_there`], without a check of the runtime's directory.
    pub fn runtime(&self, verb: &str) -> Option<Command> {
        let bundle = self.record().bundle.as_ref()?;
        let mut command = runtime(&bundle.root);
        command.arg(verb);
        Some(command)
    }
}

/// A directory or file of the host inside a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// Its path on the host.
    pub source: PathBuf,
    /// Its path in the container.
    pub target: PathBuf,
    /// Whether programs in the container may only read it.
    pub read_only: bool,
}

impl std::str::FromStr for Bind {
    type Err = &'static str;

    /// Parses `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
    fn from_str(text: &str) -> Result<Bind, &'static str> {
        const EXPECTED: &str = "expected SOURCE:TARGET or SOURCE:TARGET:ro, the target absolute";
        let (text, read_only) = match text.strip_suffix(":ro") {
            Some(text) => (text, true),
            None => (text.strip_suffix(":rw").unwrap_or(text), false),
        };
        let (source, target) = text.split_once(':').ok_or(EXPECTED)?;
        if source.is_empty() || !target.starts_with('/') || target.contains(':') {
            return Err(EXPECTED);
        }
        Ok(Bind { source: source.into(), target: target.into(), read_only })
    }
}

/// The source of a root file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RootSource {
    /// A directory.
    Directory(PathBuf),
    /// An image of podman's.
    Image {
        /// Its name.
        name: String,
        /// Whether podman pulls it if it does not have it.
        pull: bool,
    },
}

impl Default for RootSource {
    fn default() -> RootSource {
        RootSource::Directory(PathBuf::default())
    }
}

/// Options of a container with a root file system of its own. Of an image it has the settings that they do not give.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RootOptions {
    /// Its root file system.
    pub root: RootSource,
    /// Whether its programs write into the root file system, and not into a layer of the container's own.
    pub read_write: bool,
    /// Whether its program gets a terminal of its own.
    pub terminal: bool,
    /// Its host name inside.
    pub hostname: Option<String>,
    /// Environment variables in addition to the usual ones, `KEY=VALUE`.
    pub variables: Vec<String>,
    /// Working directory of its program.
    pub directory: Option<PathBuf>,
    /// User and group of its program. Default: root's.
    pub user: Option<(u32, u32)>,
    /// Whether root inside is an unprivileged user outside.
    pub user_namespace: bool,
    /// Whether it uses the host's network, and not one of its own.
    pub host_network: bool,
    /// Directories and files of the host inside.
    pub binds: Vec<Bind>,
    /// Most memory, bytes.
    pub memory: Option<u64>,
    /// Most processors, in thousandths.
    pub millicpus: Option<u64>,
    /// Most processes.
    pub processes: Option<u32>,
}

/// Makes a bundle for a container `name` that runs `command`. This process gets a mount namespace of its own, in which the
/// container's file system is assembled. The mounts go with the process and the container.
///
/// # Errors
///
/// If the root directory or the image does not exist, or this user may not mount.
pub fn make_bundle(
    name: &str,
    options: &RootOptions,
    command: &[OsString],
) -> anyhow::Result<PathBuf> {
    check_source(&options.root)?;
    let words = command.iter().map(|word| word.to_str().context("a command in UTF-8"));
    let words = words.map(|word| word.map(str::to_string)).collect::<anyhow::Result<Vec<_>>>()?;
    // An unprivileged user outside must be able to reach it. Nothing in it is secret but its config.
    let base = if options.user_namespace { PathBuf::from(DEFAULT_ROOT) } else { runtime_root() };
    remove_orphans(&base);
    let dir = bundle_dir(&base, name);
    remove_bundle(&dir);
    let me = Process::current()?;
    let me = format!("{} {}", me.pid, me.start_ticks);
    // It has its final name when it has its maker's.
    let draft = bundle_dir(&base, &format!("{DRAFT}{me}"));
    DirBuilder::new().recursive(true).mode(0o711).create(&draft)?;
    fs::write(draft.join(MAKER), format!("{me} {}", runtime_root().display()))?;
    fs::rename(draft, &dir)?;
    let made = fill_bundle(&dir, name, options.clone(), words);
    if made.is_err() {
        remove_bundle(&dir);
    }
    made.map(|()| dir)
}

/// Returns the directory of the bundle that [`make_bundle`] makes for container `name` of the runtime's directory `base`.
pub fn bundle_dir(base: &Path, name: &str) -> PathBuf {
    base.join(BUNDLES).join(name)
}

/// Removes the bundles whose maker was killed before the runtime had made a container.
fn remove_orphans(base: &Path) {
    for entry in fs::read_dir(base.join(BUNDLES)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let draft = name.to_str().and_then(|name| name.strip_prefix(DRAFT)).map(str::to_string);
        let maker = draft.or_else(|| fs::read_to_string(entry.path().join(MAKER)).ok());
        if maker.as_deref().is_some_and(|maker| has_nobody(maker, &name)) {
            remove_bundle(&entry.path());
        }
    }
}

/// Whether the maker of a bundle `name` has ended, and its runtime has no container of that name. `maker` is the bundle's record.
fn has_nobody(maker: &str, name: &OsStr) -> bool {
    let mut words = maker.splitn(3, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (Some(pid), Some(start)) = (number(), number()) else { return false };
    let is_made = words.next().is_some_and(|root| Path::new(root).join(name).exists());
    !is_made && !processes::is_running(pid as u32, start)
}

/// Checks that the root file system is there, or has podman pull it.
fn check_source(source: &RootSource) -> anyhow::Result<()> {
    let shown = match source {
        RootSource::Directory(root) => format!("--rootfs {}", root.display()),
        RootSource::Image { name, .. } => format!("--image {name}"),
    };
    if effective_user() != 0 {
        bail!("{shown}: containers are made by root only");
    }
    match source {
        RootSource::Directory(root) if !fs::metadata(root).context(shown.clone())?.is_dir() => {
            bail!("{shown}: expected a directory with a root file system")
        }
        RootSource::Directory(_) => Ok(()),
        RootSource::Image { name, pull } => {
            match (image::exists(name).context(shown.clone())?, pull) {
                (true, _) => Ok(()),
                (false, true) => image::pull(name).context(shown),
                (false, false) => {
                    let name = image::full_name(name);
                    bail!("{shown}: podman has no such image; 'podman pull {name}' gets it, and --pull")
                }
            }
        }
    }
}

fn fill_bundle(
    dir: &Path,
    name: &str,
    mut options: RootOptions,
    words: Vec<String>,
) -> anyhow::Result<()> {
    let (root, words) = match options.root.clone() {
        RootSource::Directory(root) => (fs::canonicalize(root)?, words),
        RootSource::Image { name, .. } => fill_from_image(dir, &name, &mut options, &words)?,
    };
    let seen = match options.read_write {
        true => root,
        false => {
            own_mounts()?;
            overlay(dir, &root).context("overlay")?
        }
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    write_config(dir, &bundle_config(name, &options, &seen, &words)?)
}

/// Mounts an image for the bundle `dir`. Takes its settings where the options give none, and its words before `args`. Returns the
/// root file system and the words.
fn fill_from_image(
    dir: &Path,
    name: &str,
    options: &mut RootOptions,
    args: &[String],
) -> anyhow::Result<(PathBuf, Vec<String>)> {
    fs::write(dir.join(IMAGE_RECORD), name)?;
    let (root, config) = image::mount(name, Stdio::null())?;
    let words = config.words(args);
    if words.is_empty() {
        bail!("--image {name}: it names no program; expected a command");
    }
    let given = std::mem::take(&mut options.variables);
    options.variables = config.env.iter().flatten().cloned().chain(given).collect();
    options.directory = options.directory.take().or_else(|| config.directory());
    if options.user.is_none() {
        options.user = config.user().map(|user| image::user_ids(&root, user)).transpose()?;
    }
    Ok((root, words))
}

/// Writes the config.json of the bundle `dir`, for its user alone.
///
/// # Errors
///
/// If it is there already, or the file system refuses.
pub fn write_config(dir: &Path, config: &Value) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(dir.join("config.json"))?;
    file.write_all(&serde_json::to_vec_pretty(config)?)?;
    Ok(())
}

/// Whether [`make_bundle`] made this bundle.
pub fn is_bundle_of_ours(dir: &Path) -> bool {
    dir.parent().is_some_and(|parent| parent.ends_with(BUNDLES))
}

/// Removes a bundle that [`make_bundle`] made, and no other.
pub fn remove_bundle(dir: &Path) {
    let Some(parent) = dir.parent().filter(|_| is_bundle_of_ours(dir)) else { return };
    for place in ["root", "layer"] {
        // The mounts exist only in the namespace in which they were made.
        let _ = umount2(&dir.join(place), MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(dir.join(place));
    }
    if let Ok(name) = fs::read_to_string(dir.join(IMAGE_RECORD)) {
        image::unmount(&name);
    }
    for file in ["config.json", MAKER, IMAGE_RECORD] {
        let _ = fs::remove_file(dir.join(file));
    }
    let _ = fs::remove_dir(dir);
    let _ = fs::remove_dir(parent);
    // Fails if the directory above is gone or in use, or was not made by this program.
    let _ = parent.parent().map(fs::remove_dir);
}

/// Returns the config.json of a container `name` that runs `words` in the root file system `root`.
///
/// # Errors
///
/// If a path is not in UTF-8, or a bind's source does not exist.
pub fn bundle_config(
    name: &str,
    options: &RootOptions,
    root: &Path,
    words: &[&str],
) -> anyhow::Result<Value> {
    let text = |path: &Path| path.to_str().map(str::to_string).context("a path in UTF-8");
    let mut variables = vec![
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_string(),
        format!("TERM={}", env::var("TERM").unwrap_or_else(|_| "xterm".into())),
    ];
    for variable in &options.variables {
        let key = variable.split('=').next().unwrap_or_default();
        variables.retain(|other| other.split('=').next() != Some(key));
        variables.push(variable.clone());
    }
    let (uid, gid) = options.user.unwrap_or((0, 0));
    let directory = options.directory.as_deref().unwrap_or(Path::new("/"));
    Ok(json!({
        "ociVersion": "1.0.2",
        "hostname": options.hostname.as_deref().unwrap_or(name),
        "root": { "path": text(root)?, "readonly": false },
        "process": {
            "terminal": options.terminal,
            "user": { "uid": uid, "gid": gid },
            "args": words,
            "env": variables,
            "cwd": text(directory)?,
            "capabilities": {
                "bounding": CAPABILITIES,
                "effective": if uid == 0 { &CAPABILITIES[..] } else { &[] },
                "permitted": if uid == 0 { &CAPABILITIES[..] } else { &[] },
            },
        },
        "mounts": mounts(options)?,
        "linux": linux(name, options),
    }))
}

fn mounts(options: &RootOptions) -> anyhow::Result<Vec<Value>> {
    let usual = |target: &str, kind: &str, flags: &str| {
        let flags: Vec<&str> = flags.split(',').collect();
        json!({ "destination": target, "type": kind, "source": kind, "options": flags })
    };
    let mut mounts = vec![
        usual("/proc", "proc", "nosuid,noexec,nodev"),
        usual("/dev", "tmpfs", "nosuid,noexec,strictatime,mode=755,size=65536k"),
        usual("/dev/pts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620"),
        usual("/dev/shm", "tmpfs", "nosuid,noexec,nodev,mode=1777,size=65536k"),
        usual("/dev/mqueue", "mqueue", "nosuid,noexec,nodev"),
        usual("/sys", "sysfs", "nosuid,noexec,nodev,ro"),
        usual("/sys/fs/cgroup", "cgroup", "nosuid,noexec,nodev,relatime,ro"),
    ];
    for bind in &options.binds {
        let shown = bind.source.display();
        let source = fs::canonicalize(&bind.source).with_context(|| format!("--mount {shown}"))?;
        let access = if bind.read_only { "ro" } else { "rw" };
        mounts.push(json!({
            "destination": bind.target, "type": "bind", "source": source,
            "options": ["rbind", "rprivate", access],
        }));
    }
    Ok(mounts)
}

fn linux(name: &str, options: &RootOptions) -> Value {
    let mut namespaces = vec!["pid", "ipc", "uts", "mount", "cgroup"];
    if !options.host_network {
        namespaces.push("network");
    }
    if options.user_namespace {
        namespaces.push("user");
    }
    let namespaces: Vec<Value> = namespaces.iter().map(|kind| json!({ "type": kind })).collect();
    let mut linux = json!({
        "namespaces": namespaces,
        "cgroupsPath": format!("/lorentz-{name}"),
        "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
        "maskedPaths": [
            "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
            "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
            "/sys/devices/virtual/powercap", "/sys/firmware",
        ],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if options.user_namespace {
        // The numbers that engines give to a first container.
        let all = json!([{ "containerID": 0, "hostID": 100_000, "size": 65_536 }]);
        linux["uidMappings"] = all.clone();
        linux["gidMappings"] = all;
    }
    const CPU_PERIOD_US: u64 = 100_000;
    let resources = &mut linux["resources"];
    if let Some(bytes) = options.memory {
        resources["memory"]["limit"] = bytes.into();
    }
    if let Some(thousandths) = options.millicpus {
        resources["cpu"] =
            json!({ "period": CPU_PERIOD_US, "quota": thousandths * CPU_PERIOD_US / 1000 });
    }
    if let Some(most) = options.processes {
        resources["pids"]["limit"] = most.into();
    }
    linux
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_read_as_engines_write_them() {
        let bind = |read_only| Bind { source: "/a".into(), target: "/b".into(), read_only };
        assert_eq!("/a:/b".parse(), Ok(bind(false)));
        assert_eq!("/a:/b:rw".parse(), Ok(bind(false)));
        assert_eq!("/a:/b:ro".parse(), Ok(bind(true)));
        for wrong in ["", "/a", "/a:b", ":/b", "/a:/b:/c", "/a:/b:xx"] {
            assert!(wrong.parse::<Bind>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_config_says_what_was_asked() {
        let options = RootOptions {
            variables: vec!["A=1".into(), "PATH=/x".into()],
            user: Some((7, 8)),
            user_namespace: true,
            memory: Some(1 << 20),
            millicpus: Some(1500),
            processes: Some(9),
            ..Default::default()
        };
        let config = bundle_config("web", &options, Path::new("/r"), &["sh"]).unwrap();
        assert_eq!(config["hostname"], "web");
        assert_eq!(config["process"]["user"], json!({"uid": 7, "gid": 8}));
        assert_eq!(config["process"]["env"].as_array().unwrap()[1..], ["A=1", "PATH=/x"]);
        assert_eq!(config["linux"]["resources"]["memory"]["limit"], 1 << 20);
        assert_eq!(config["linux"]["resources"]["cpu"]["quota"], 150_000);
        assert_eq!(config["linux"]["resources"]["pids"]["limit"], 9);
        let namespaces = config["linux"]["namespaces"].as_array().unwrap();
        assert!(namespaces.contains(&json!({"type": "user"})));
        assert!(namespaces.contains(&json!({"type": "network"})));
    }

    #[test]
    fn a_bundle_has_nobody_once_its_maker_has_ended_and_made_no_container() {
        let me = Process::current().unwrap();
        let root = tempfile::tempdir().unwrap();
        let is_left = |start: u64, name: &str| {
            has_nobody(&format!("{} {start} {}", me.pid, root.path().display()), OsStr::new(name))
        };
        assert!(!is_left(me.start_ticks, "web"));
        assert!(is_left(me.start_ticks + 1, "web"));
        fs::create_dir(root.path().join("web")).unwrap();
        assert!(!is_left(me.start_ticks + 1, "web"));
        assert!(has_nobody(&format!("{} {}", me.pid, me.start_ticks + 1), OsStr::new("draft")));
        assert!(!has_nobody("", OsStr::new("web")));
    }

    #[test]
    fn only_bundles_made_here_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("config.json"), "{}").unwrap();
        remove_bundle(&other);
        assert!(other.join("config.json").exists());
        let ours = place.path().join(BUNDLES).join("web");
        fs::create_dir_all(ours.join("root")).unwrap();
        fs::write(ours.join("config.json"), "{}").unwrap();
        remove_bundle(&ours);
        assert!(!place.path().join(BUNDLES).exists());
    }
}
