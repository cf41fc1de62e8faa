//! The directory of a checkpoint.
//!
//! ```text
//! DIR/
//!     lorentz.json     what it is: see `Checkpoint`; its own checksum, and that of every other file
//!     clock            the clock's file, without the zeros at its end
//!     discipline.json  the clock's error, if it has had one
//!     criu/            CRIU's images; those of a container of an OCI runtime lie in DIR, where engines look for them
//!     pre-1/, ...      memory that was saved while the programs ran: see `pre_copy`
//!     restore.log      what CRIU said at the last restore that failed
//! ```
//!
//! It is written under another name and renamed when it is complete.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lorentz_clock::{saturate, Span};
use lorentz_control::discipline::ERROR_FILE;
use lorentz_control::{number_inside, HostNow};
use lorentz_inject::{Capabilities, CpuTimes, SavedProcess, Shim};
use serde::{Deserialize, Serialize};

use crate::mounts::CgroupMount;
use crate::CheckpointRefused;

/// Version of the layout.
const FORMAT: u32 = 1;
const DESCRIPTION: &str = "lorentz.json";
const CLOCK: &str = "clock";
const IMAGES: &str = "criu";
const RESTORE_LOG: &str = "restore.log";

/// The description of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Version of Lorentz that made it.
    pub lorentz: String,
    /// Checksum of the shim of the build that made it.
    pub shim: u32,
    /// The layout of the programs' shims ([`Shim::layout`]); 0 in a checkpoint of a version that did not write it.
    #[serde(default)]
    pub shim_layout: u32,
    /// The host's kernel release.
    pub kernel: String,
    /// The host's boot id: its CLOCK_MONOTONIC begins anew with each boot.
    pub boot_id: String,
    /// The version of CRIU that wrote the images.
    pub criu: String,
    /// The container's name.
    pub name: String,
    /// Its command.
    pub command: Vec<String>,
    /// The container's CLOCK_REALTIME at the checkpoint.
    pub wall: String,
    /// Its CLOCK_MONOTONIC, ns.
    pub monotonic_ns: i64,
    /// Its CLOCK_BOOTTIME, ns.
    pub boottime_ns: i64,
    /// Its rate.
    pub rate: String,
    /// Whether the clock was frozen before the checkpoint.
    pub frozen: bool,
    /// The host's CLOCK_REALTIME at the checkpoint, ns.
    pub host_wall_ns: i128,
    /// The host's CLOCK_MONOTONIC at that moment, ns.
    pub host_monotonic_ns: i64,
    /// CLOCK_MONOTONIC and CLOCK_BOOTTIME of the time namespace in which it was made, minus the machine's, ns.
    pub time_offsets: [i64; 2],
    /// Whether TCP connections to outside were saved.
    pub tcp_established: bool,
    /// CRIU's key for the clock's file.
    pub clock_key: String,
    /// CRIU's keys for the pipes among the standard streams, with the streams' numbers.
    pub pipes: Vec<(i32, String)>,
    /// CRIU's keys for the files among the standard streams of a container of an OCI runtime, with the streams' numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_of_outside: Vec<(i32, String)>,
    /// The first process, by its number in its own process id namespace.
    pub root: u32,
    /// All processes.
    pub processes: Vec<ProcessEntry>,
    /// The bundle of a container of an OCI runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleEntry>,
    /// Length and checksum of each other file, by its path in the directory.
    pub files: BTreeMap<String, (u64, u32)>,
}

/// The parts of an OCI bundle on which a checkpoint depends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BundleEntry {
    /// The inode of its process id namespace.
    pub pid_namespace: u32,
    /// CRIU's key for its network namespace, if that came from outside.
    pub network: Option<String>,
    /// The mount point of each bind mount inside, by the destination in the bundle.
    pub binds: BTreeMap<String, String>,
    /// The control groups that are mounted inside.
    pub cgroups: Vec<CgroupMount>,
}

/// A process of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessEntry {
    /// Its number in its own process id namespace.
    pub pid: u32,
    /// Its name, for people.
    pub name: String,
    /// CPU time that it has used, ns.
    pub cpu_ns: i64,
    /// Its threads.
    pub threads: Vec<ThreadEntry>,
    /// The capabilities of its first thread, if the images lend it more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<CapabilitiesEntry>,
    /// [`Shim::gate_done`].
    #[serde(default)]
    pub gate_done: Option<u64>,
}

/// The sets of capabilities of a thread, as in [`Capabilities`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CapabilitiesEntry {
    /// The effective set.
    pub effective: u64,
    /// The permitted set.
    pub permitted: u64,
    /// The bounding set.
    pub bounding: u64,
}

impl CapabilitiesEntry {
    fn of(sets: Capabilities) -> CapabilitiesEntry {
        let Capabilities { effective, permitted, bounding } = sets;
        CapabilitiesEntry { effective, permitted, bounding }
    }

    /// The sets.
    pub(crate) fn sets(self) -> Capabilities {
        let CapabilitiesEntry { effective, permitted, bounding } = self;
        Capabilities { effective, permitted, bounding }
    }
}

/// A thread of a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Its number.
    pub tid: u32,
    /// CPU time that it has used, ns.
    pub cpu_ns: i64,
}

impl ProcessEntry {
    /// Describes a stopped process, which has this shim.
    pub(crate) fn of(pid: u32, shim: Shim) -> io::Result<ProcessEntry> {
        let used = CpuTimes::read(pid)?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))?.trim().to_string();
        let thread = |(tid, cpu_ns)| ThreadEntry { tid, cpu_ns };
        let threads = used.threads.into_iter().map(thread).collect();
        let capabilities = Capabilities::of_unable(pid)?.map(CapabilitiesEntry::of);
        let pid = number_inside(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let (cpu_ns, gate_done) = (used.process, shim.gate_done);
        Ok(ProcessEntry { pid, name, cpu_ns, threads, capabilities, gate_done })
    }

    /// The process, for its adoption.
    pub(crate) fn saved(&self) -> SavedProcess {
        let threads = self.threads.iter().map(|thread| (thread.tid, thread.cpu_ns)).collect();
        let used = CpuTimes { process: self.cpu_ns, threads };
        let own = self.capabilities.map(CapabilitiesEntry::sets);
        SavedProcess { used, own, gate_done: self.gate_done }
    }
}

/// The file [`DESCRIPTION`].
#[derive(Serialize, Deserialize)]
struct Description {
    format: u32,
    checksum: u32,
    checkpoint: serde_json::Value,
}

/// The place of a new directory, and of the same directory under construction.
pub(crate) struct Place {
    /// Where it will be.
    pub target: PathBuf,
    unfinished: PathBuf,
    /// Where CRIU's images are, below the directory.
    images: &'static str,
}

impl Place {
    /// Checks that `target` can be made.
    pub fn beside(target: &Path) -> Result<Place, CheckpointRefused> {
        if fs::symlink_metadata(target).is_ok() {
            return Err(CheckpointRefused::Exists(target.to_path_buf()));
        }
        let refused = |why: &str| {
            let (dir, why) = (target.to_path_buf(), why.to_string());
            CheckpointRefused::Directory { dir, why }
        };
        let name = target.file_name().ok_or_else(|| refused("it has no name"))?;
        let hidden = format!(".{}.new-{}", name.to_string_lossy(), std::process::id());
        let unfinished = target.with_file_name(hidden);
        let above = unfinished.parent().filter(|above| !above.as_os_str().is_empty());
        match above.is_none_or(Path::is_dir) {
            true => Ok(Place { target: target.to_path_buf(), unfinished, images: IMAGES }),
            false => Err(refused("the directory above it does not exist")),
        }
    }

    /// As [`Place::beside`], for a directory that an engine names. It may have made it, or have an earlier checkpoint there, which is
    /// removed.
    pub fn for_engine(target: &Path) -> anyhow::Result<Place> {
        let is_checkpoint = target.join(DESCRIPTION).exists();
        let removed =
            if is_checkpoint { fs::remove_dir_all(target) } else { fs::remove_dir(target) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Refused below.
            Err(_) if !is_checkpoint => {}
            removed => removed?,
        }
        Ok(Place { images: "", ..Place::beside(target)? })
    }

    /// Whether the directory is under construction.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished.exists()
    }

    /// Removes the directory under construction.
    pub fn clear(&self) {
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

/// A directory under construction. It is removed when this value is dropped before [`Unfinished::finish`].
pub(crate) struct Unfinished {
    dir: PathBuf,
    target: PathBuf,
    images: PathBuf,
}

impl Unfinished {
    /// Makes the directory.
    pub fn make(place: &Place) -> io::Result<Unfinished> {
        let (dir, target) = (place.unfinished.clone(), place.target.clone());
        DirBuilder::new().mode(0o700).create(&dir)?;
        let images = dir.join(place.images);
        let made = Unfinished { dir, target, images };
        DirBuilder::new().mode(0o700).recursive(true).create(&made.images)?;
        Ok(made)
    }

    /// The directory of CRIU's images.
    pub fn images(&self) -> &Path {
        &self.images
    }

    /// Makes the directory `name` in it.
    pub fn make_dir(&self, name: &str) -> io::Result<PathBuf> {
        let dir = self.dir.join(name);
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(dir)
    }

    /// Copies the clock's file, and its error beside it.
    pub fn copy_clock(&self, clock: &Path) -> io::Result<()> {
        let mut bytes = fs::read(clock)?;
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        fs::write(self.dir.join(CLOCK), bytes)?;
        copy_if_there(&clock.with_file_name(ERROR_FILE), &self.dir.join(ERROR_FILE))
    }

    /// Describes the directory, and gives it its name. `description` lacks the files.
    pub fn finish(self, mut description: Checkpoint) -> anyhow::Result<()> {
        description.files = files_of(&self.dir)?;
        let checkpoint = serde_json::to_value(&description)?;
        let checksum = crc32fast::hash(checkpoint.to_string().as_bytes());
        let text =
            serde_json::to_vec_pretty(&Description { format: FORMAT, checksum, checkpoint })?;
        fs::write(self.dir.join(DESCRIPTION), text)?;
        fs::rename(&self.dir, &self.target)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop),
    }
}

/// Length and checksum of each file in `dir` and in its directories.
fn files_of(dir: &Path) -> io::Result<BTreeMap<String, (u64, u32)>> {
    let mut found = BTreeMap::new();
    let mut below = vec![PathBuf::new()];
    while let Some(place) = below.pop() {
        for entry in fs::read_dir(dir.join(&place))? {
            let entry = entry?;
            let (name, kind) = (place.join(entry.file_name()), entry.file_type()?);
            if kind.is_file() {
                found.insert(name.to_string_lossy().into_owned(), checksum_of(&entry.path())?);
            } else if kind.is_dir() {
                below.push(name);
            }
        }
    }
    Ok(found)
}

fn checksum_of(path: &Path) -> io::Result<(u64, u32)> {
    const BUFFER_LEN: usize = 1 << 20;
    let (mut file, mut buffer) = (File::open(path)?, vec![0; BUFFER_LEN]);
    let (mut hasher, mut length) = (crc32fast::Hasher::new(), 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((length, hasher.finalize())),
            read => {
                hasher.update(&buffer[..read]);
                length += read as u64;
            }
        }
    }
}

/// The directory of a checkpoint that is whole.
pub(crate) struct Whole {
    dir: PathBuf,
    /// Its description.
    pub checkpoint: Checkpoint,
}

impl Whole {
    /// Opens `dir`, and checks every file in it.
    pub fn open(dir: &Path) -> Result<Whole, CheckpointRefused> {
        let refused = |why: String| CheckpointRefused::Directory { dir: dir.to_path_buf(), why };
        let text = fs::read(dir.join(DESCRIPTION))
            .map_err(|error| refused(format!("no checkpoint: {DESCRIPTION}: {error}")))?;
        let damaged = |what: &str| refused(format!("damaged: {what}"));
        let read: Description = serde_json::from_slice(&text).map_err(|_| damaged(DESCRIPTION))?;
        if read.format != FORMAT {
            return Err(refused(format!("layout {}, expected {FORMAT}", read.format)));
        }
        if crc32fast::hash(read.checkpoint.to_string().as_bytes()) != read.checksum {
            return Err(damaged(DESCRIPTION));
        }
        let checkpoint: Checkpoint =
            serde_json::from_value(read.checkpoint).map_err(|_| damaged(DESCRIPTION))?;
        for (name, known) in &checkpoint.files {
            match checksum_of(&dir.join(name)) {
                Ok(found) if found == *known => {}
                Ok((length, _)) if length != known.0 => {
                    return Err(damaged(&format!("{name} has {length} bytes, not {}", known.0)));
                }
                Ok(_) => return Err(damaged(name)),
                Err(error) => return Err(damaged(&format!("{name}: {error}"))),
            }
        }
        Ok(Whole { dir: dir.to_path_buf(), checkpoint })
    }

    /// The directory of CRIU's images.
    pub fn images(&self) -> PathBuf {
        match self.checkpoint.bundle {
            Some(_) => self.dir.clone(),
            None => self.dir.join(IMAGES),
        }
    }

    /// The contents of the clock's file.
    pub fn clock(&self) -> io::Result<Vec<u8>> {
        fs::read(self.dir.join(CLOCK))
    }

    /// Copies the clock's error to a new clock, if it has had one.
    pub fn put_error_beside(&self, clock: &Path) -> io::Result<()> {
        // Other files in the directory were not checked.
        if self.checkpoint.files.contains_key(ERROR_FILE) {
            fs::copy(self.dir.join(ERROR_FILE), clock.with_file_name(ERROR_FILE))?;
        }
        Ok(())
    }

    /// Copies the log of a restore that failed into it, and returns its path. An engine takes the log of its container by itself.
    pub fn keep_log(&self, log: &Path) -> Option<PathBuf> {
        let kept = self.dir.join(RESTORE_LOG);
        let is_kept = self.checkpoint.bundle.is_none() && fs::copy(log, &kept).is_ok();
        is_kept.then_some(kept)
    }

    /// Checks whether this build of Lorentz can restore it: the same, or another with the same layout.
    pub fn check_build(&self) -> Result<(), CheckpointRefused> {
        let (made_by, own) = (self.checkpoint.shim_layout, Shim::own().layout);
        if made_by == own {
            return Ok(());
        }
        let by = &self.checkpoint.lorentz;
        let why = format!(
            "made by another build of Lorentz ({by}) with the shim layout {made_by:06x}, expected {own:06x} ('lorentz --version')"
        );
        Err(CheckpointRefused::Directory { dir: self.dir.clone(), why })
    }

    /// The difference between this host's CLOCK_MONOTONIC and that of the host which made the checkpoint, at one moment of the wall
    /// clock. It is zero on the same host until its next boot, also if its wall clock was set meanwhile.
    pub fn difference_of_hosts(&self) -> io::Result<Span> {
        let (host, now, then) = (Host::read()?, HostNow::read()?, &self.checkpoint);
        if (&then.boot_id, then.time_offsets) == (&host.boot_id, host.time_offsets) {
            return Ok(Span::ZERO);
        }
        let wall_passed = now.wall.as_nanos() - then.host_wall_ns;
        let monotonic_passed = i128::from(now.real.0) - i128::from(then.host_monotonic_ns);
        Ok(Span(saturate(monotonic_passed - wall_passed)))
    }
}

/// The facts of this host that a restore depends on.
pub(crate) struct Host {
    pub kernel: String,
    pub boot_id: String,
    pub time_offsets: [i64; 2],
}

impl Host {
    pub fn read() -> io::Result<Host> {
        let line = |path: &str| Ok::<_, io::Error>(fs::read_to_string(path)?.trim().to_string());
        let kernel = line("/proc/sys/kernel/osrelease")?;
        let boot_id = line("/proc/sys/kernel/random/boot_id")?;
        Ok(Host { kernel, boot_id, time_offsets: lorentz_inject::own_time_offsets() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let (thread, shim) = (ThreadEntry { tid: 7, cpu_ns: 3 }, Shim::own());
        Checkpoint {
            lorentz: "0.1.0".into(),
            shim: lorentz_inject::shim_build_id(),
            shim_layout: shim.layout,
            kernel: "6.1".into(),
            boot_id: Host::read().unwrap().boot_id,
            criu: "4.2".into(),
            name: "web".into(),
            command: vec!["sleep".into(), "1".into()],
            wall: "2038-01-19T00:00:00Z".into(),
            monotonic_ns: 1,
            boottime_ns: 2,
            rate: "1/10".into(),
            frozen: false,
            host_wall_ns: 3,
            host_monotonic_ns: 4,
            time_offsets: [5, 6],
            tcp_established: false,
            clock_key: "file[1:2]".into(),
            pipes: vec![(1, "pipe:[9]".into())],
            files_of_outside: vec![],
            root: 7,
            processes: vec![ProcessEntry {
                pid: 7,
                name: "sleep".into(),
                cpu_ns: 4,
                threads: vec![thread],
                capabilities: None,
                gate_done: shim.gate_done,
            }],
            bundle: None,
            files: BTreeMap::new(),
        }
    }

    fn make(target: &Path) {
        let unfinished = Unfinished::make(&Place::beside(target).unwrap()).unwrap();
        let clock = target.with_file_name("clock-file");
        fs::write(&clock, [1, 2, 0, 3, 0, 0]).unwrap();
        unfinished.copy_clock(&clock).unwrap();
        fs::write(unfinished.images().join("core.img"), "core").unwrap();
        unfinished.finish(checkpoint()).unwrap();
    }

    #[test]
    fn it_reads_back() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("saved");
        make(&dir);
        let whole = Whole::open(&dir).unwrap();
        whole.check_build().unwrap();
        assert_eq!(whole.clock().unwrap(), [1, 2, 0, 3]);
        let files: Vec<&String> = whole.checkpoint.files.keys().collect();
        assert_eq!(files, ["clock", "criu/core.img"]);
        assert_eq!(Checkpoint { files: BTreeMap::new(), ..whole.checkpoint }, checkpoint());
    }

    #[test]
    fn each_changed_byte_is_found() {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("saved");
        make(&dir);
        for name in [CLOCK, "criu/core.img", DESCRIPTION] {
            let good = fs::read(dir.join(name)).unwrap();
            for at in 0..good.len() {
                let mut wrong = good.clone();
                wrong[at] ^= 1;
                fs::write(dir.join(name), wrong).unwrap();
                // White space in the description is no matter.
                let is_space = name == DESCRIPTION && good[at].is_ascii_whitespace();
                assert!(is_space || Whole::open(&dir).is_err(), "{name} {at}");
            }
            fs::write(dir.join(name), good).unwrap();
        }
        Whole::open(&dir).unwrap();
    }

    #[test]
    fn what_is_not_finished_is_removed() {
        let above = tempfile::tempdir().unwrap();
        let place = Place::beside(&above.path().join("saved")).unwrap();
        drop(Unfinished::make(&place).unwrap());
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 0);
        for wrong in [above.path(), Path::new("/"), &above.path().join("none/saved")] {
            assert!(Place::beside(wrong).is_err());
        }
    }
}
