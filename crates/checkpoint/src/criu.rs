//! Requests to CRIU, by its RPC: `criu swrk FD`, one process for each request.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use lorentz_container::criu as installed;
use lorentz_control::Cgroup;
use lorentz_inject::fork_in;
use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use nix::mount::{mount, MsFlags};
use nix::poll::{poll, PollFd, PollFlags};
use nix::sched::{unshare, CloneFlags};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{kill, killpg, Signal};
use nix::sys::socket::{socketpair, AddressFamily, SockFlag, SockType};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{ForkResult, Pid};
use protobuf::{Message, MessageField};
use rust_criu::rust_criu_protobuf::rpc::{
    Criu_cg_mode, Criu_opts, Criu_req, Criu_req_type, Criu_resp,
};

use crate::CheckpointRefused;

/// Longest message of the protocol, bytes.
const MESSAGE_LEN: usize = 64 * 1024;
const ENDED: &str = "it has ended without a word";
pub const LOG: &str = "criu.log";
/// Files that CRIU writes into its working directory.
const BY_PRODUCTS: [&str; 3] = [LOG, "stats-dump", "stats-restore"];

/// Options of every request. `images` is the directory of the images, `work` that of CRIU's log.
pub fn options(images: &File, work: &File) -> Criu_opts {
    const ERRORS_AND_WARNINGS: i32 = 2;
    /// CRIU saves deleted files up to this length with the processes, bytes.
    const GHOST_LIMIT: u32 = 256 << 20;
    let mut options = Criu_opts::new();
    options.set_images_dir_fd(images.as_raw_fd());
    options.set_work_dir_fd(work.as_raw_fd());
    options.set_log_level(ERRORS_AND_WARNINGS);
    options.set_log_file(LOG.to_string());
    // A program of `lorentz run` is in its caller's session.
    options.set_shell_job(true);
    options.set_ext_unix_sk(true);
    options.set_file_locks(true);
    options.set_link_remap(true);
    options.set_ghost_limit(GHOST_LIMIT);
    options.set_manage_cgroups(true);
    options.set_manage_cgroups_mode(Criu_cg_mode::IGNORE);
    options
}

/// Has CRIU save what the programs have written since it saved them into `parent`, or everything, and has the kernel mark from then on
/// what they write. `parent` is a path from the directory of the images.
pub fn track_memory(options: &mut Criu_opts, parent: Option<&str>) {
    options.set_track_mem(true);
    if let Some(parent) = parent {
        options.set_parent_img(parent.to_string());
    }
}

/// A running `criu swrk`.
pub struct Request {
    socket: File,
    path: PathBuf,
    criu: Pid,
    has_ended: bool,
    request: Criu_req_type,
}

/// Whether CRIU ends with this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// It completes its work.
    GoesOn,
    /// The kernel kills it.
    Ends,
}

/// A root file system, and the directory at which CRIU needs it: a mount point whose parent has nothing mounted over it.
pub struct RootMount<'a> {
    pub source: &'a Path,
    pub point: &'a Path,
}

impl RootMount<'_> {
    /// Mounts it in a mount namespace of the calling process's own, which ends with the process.
    fn mount(&self) -> nix::Result<()> {
        const NONE: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        // A file system that the host unmounts goes here too.
        mount(NONE, "/", NONE, MsFlags::MS_SLAVE | MsFlags::MS_REC, NONE)?;
        mount(Some(self.source), self.point, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
    }
}

/// Where CRIU begins.
#[derive(Clone, Copy, Default)]
pub struct Start<'a> {
    /// The root file system that it finds.
    pub root: Option<&'a RootMount<'a>>,
    /// Its control group, if the kernel starts processes in groups.
    pub group: Option<&'a Cgroup>,
}

/// Before or beside a step of CRIU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// CRIU waits.
    Before,
    /// CRIU goes on.
    Meanwhile,
}

/// Starts `command` in `group`, or beside this process where the kernel refuses. The caller must have one thread only.
fn start(command: &mut Command, group: Option<&Cgroup>) -> io::Result<Pid> {
    let group = group.and_then(|group| group.open().ok());
    // SAFETY: one thread. The child replaces itself by the command, or ends.
    let (forked, _) = unsafe { fork_in(group.as_ref().map(AsFd::as_fd)) }?;
    match forked {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // The parent finds its socket closed if this returns.
            let _ = command.exec();
            // SAFETY: ends this process. Nothing of the parent's may run again here.
            unsafe { libc::_exit(127) }
        }
    }
}

impl Request {
    /// Starts CRIU, which inherits `inherited`. It does nothing before [`Request::send`]. The caller must have one thread only.
    pub fn begin(
        criu: &Path,
        request: Criu_req_type,
        inherited: &[RawFd],
        survival: Survival,
    ) -> anyhow::Result<Request> {
        Request::begin_in(criu, request, inherited, survival, Start::default())
    }

    /// As [`Request::begin`], for a CRIU that begins at `at`.
    pub fn begin_in(
        criu: &Path,
        request: Criu_req_type,
        inherited: &[RawFd],
        survival: Survival,
        at: Start,
    ) -> anyhow::Result<Request> {
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (ours, theirs): (OwnedFd, OwnedFd) =
            socketpair(AddressFamily::Unix, kind, None, flags)?;
        let passed: Vec<RawFd> = inherited.iter().copied().chain([theirs.as_raw_fd()]).collect();
        let mut command = Command::new(criu);
        command.arg("swrk").arg(theirs.as_raw_fd().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let root = at.root.map(|root| (root.source.to_path_buf(), root.point.to_path_buf()));
        let prepare = move || {
            if let Some((source, point)) = &root {
                RootMount { source, point }.mount()?;
            }
            for fd in &passed {
                // SAFETY: the caller of `begin` has them open.
                let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
                fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            if survival == Survival::Ends {
                set_pdeathsig(Signal::SIGKILL)?;
            }
            Ok(())
        };
        command.process_group(0);
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(prepare) };
        let started = start(&mut command, at.group);
        let pid = started.with_context(|| format!("{}", criu.display()))?;
        let (socket, path) = (ours.into(), criu.to_path_buf());
        Ok(Request { socket, path, criu: pid, has_ended: false, request })
    }

    /// CRIU's process id.
    pub fn pid(&self) -> u32 {
        self.criu.as_raw() as u32
    }

    /// Asks CRIU for its version, before [`Request::send`].
    ///
    /// # Errors
    ///
    /// [`CheckpointRefused::NoCriu`] if it is too old, or no CRIU.
    pub fn version(&mut self) -> anyhow::Result<String> {
        let no_criu = |found| CheckpointRefused::NoCriu { found };
        let version = match self.ask_version() {
            Ok(version) => version,
            // Its own command line tells whether it is a CRIU at all.
            Err(error) => match installed::find() {
                Err(found) => return Err(no_criu(found).into()),
                Ok(_) => anyhow::bail!("CRIU: {error}"),
            },
        };
        installed::check_version(&self.path, &version).map_err(no_criu)?;
        Ok(version)
    }

    fn ask_version(&mut self) -> anyhow::Result<String> {
        let mut request = Criu_req::new();
        request.set_type(Criu_req_type::VERSION);
        request.set_keep_open(true);
        self.write(&request)?;
        let version = self.read()?.version.unwrap_or_default();
        let patch = version.has_sublevel().then(|| format!(".{}", version.sublevel()));
        let (major, minor) = (version.major_number(), version.minor_number());
        Ok(format!("{major}.{minor}{}", patch.unwrap_or_default()))
    }

    /// Sends the request and waits for the result. CRIU tells `notify` each of its steps, and waits at [`Moment::Before`].
    pub fn send(
        &mut self,
        options: Criu_opts,
        mut notify: impl FnMut(Moment, &str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Criu_resp> {
        let mut request = Criu_req::new();
        request.set_type(self.request);
        request.opts = MessageField::some(options);
        self.write(&request)?;
        loop {
            let response = self.read()?;
            match response.type_() {
                Criu_req_type::NOTIFY => {
                    let step = response.notify.script();
                    let done = notify(Moment::Before, step);
                    let mut answer = Criu_req::new();
                    answer.set_type(Criu_req_type::NOTIFY);
                    answer.set_notify_success(done.is_ok());
                    self.write(&answer)?;
                    done?;
                    notify(Moment::Meanwhile, step)?;
                }
                _ if response.success() => return Ok(response),
                _ => anyhow::bail!("errno {}", response.cr_errno()),
            }
        }
    }

    fn write(&mut self, request: &Criu_req) -> anyhow::Result<()> {
        self.socket.write_all(&request.write_to_bytes()?).context(ENDED)
    }

    fn read(&mut self) -> anyhow::Result<Criu_resp> {
        self.await_message()?;
        let mut message = vec![0; MESSAGE_LEN];
        let length = self.socket.read(&mut message).context(ENDED)?;
        anyhow::ensure!(length > 0, ENDED);
        Ok(Criu_resp::parse_from_bytes(&message[..length])?)
    }
}

impl Request {
    /// Waits for a message. A helper of a CRIU that was killed may keep the socket open.
    fn await_message(&mut self) -> anyhow::Result<()> {
        const LOOK_INTERVAL_MS: u16 = 100;
        loop {
            self.has_ended = self.has_ended || {
                let status = waitpid(self.criu, Some(WaitPidFlag::WNOHANG))?;
                status != WaitStatus::StillAlive
            };
            let ended = self.has_ended;
            let timeout = if ended { 0 } else { LOOK_INTERVAL_MS };
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) | Err(Errno::EINTR) => anyhow::ensure!(!ended, ENDED),
                done => return Ok(done.map(drop)?),
            }
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.has_ended {
            // Race: CRIU ends by itself when the socket is closed. A restore whose result nobody wants must not go on.
            let _ = kill(self.criu, Signal::SIGKILL);
            let _ = waitpid(self.criu, None);
        }
        if matches!(self.request, Criu_req_type::DUMP | Criu_req_type::PRE_DUMP) {
            // Its helpers. Restored programs of a restore may be in this group.
            let _ = killpg(self.criu, Signal::SIGKILL);
        }
    }
}

/// Removes what CRIU has written into its working directory.
pub fn clear_work(work: &Path) {
    for name in BY_PRODUCTS {
        let _ = std::fs::remove_file(work.join(name));
    }
}

/// Names CRIU's first error in the log in its working directory, or else `error`.
pub fn explain(work: &Path, error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("CRIU: {}", first_error(work).unwrap_or_else(|| format!("{error:#}")))
}

fn first_error(work: &Path) -> Option<String> {
    let log = std::fs::read(work.join(LOG)).ok()?;
    let log = String::from_utf8_lossy(&log);
    // CRIU goes on without more descriptors than root may have.
    let is_error = |line: &&str| line.contains("Error (") && !line.contains("RLIMIT_NOFILE");
    let line = log.lines().find(is_error)?;
    // "(00.012345) Error (criu/file.c:1): what"
    let (_, what) = line.split_once("): ")?;
    let what = what.trim();
    match KNOWN.iter().find(|(words, _)| what.contains(words)) {
        Some((_, better)) => Some((*better).to_string()),
        None => Some(what.to_string()),
    }
}

/// Words of CRIU's errors that do not tell a user what to do, and better ones.
const KNOWN: [(&str, &str); 2] = [
    ("Can't get 1:16 opt", "4.1 saves no internet sockets on Linux 6.16 or later; CRIU 4.2 does"),
    (
        "Connected TCP socket, consider using --tcp-established option",
        "a program has a TCP connection; --tcp-established saves it too",
    ),
];
