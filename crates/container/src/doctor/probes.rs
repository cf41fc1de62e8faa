//! Probes of the host. None leaves anything behind: if a probe changes its process, it runs in a child that ends.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long, c_ulong, pid_t};
use lorentz_control::{Cgroup, CgroupPlace};
use nix::errno::Errno;

/// SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV.
pub(super) const WAIT_KILLABLE: c_ulong = 1 << 5;
/// CLONE_NEWTIME.
pub(super) const NEW_TIME: c_int = 0x80;

/// SECCOMP_FILTER_FLAG_NEW_LISTENER.
const NEW_LISTENER: c_ulong = 1 << 3;
/// SECCOMP_IOCTL_NOTIF_SET_FLAGS.
const NOTIF_SET_FLAGS: c_ulong = 0x4008_2104;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP.
const SYNC_WAKE_UP: c_ulong = 1;
/// The address of the shim, and the length of the shim and the clock.
const SHIM_ADDRESS: usize = 0x7000_0000;
const SHIM_LENGTH: usize = 0x0040_0000;
/// Seconds after which a child that hangs is killed.
const CHILD_TIMEOUT_SECS: u32 = 5;

/// The exit status of a child that an unexpected signal ended.
const KILLED: c_int = libc::EINTR;

/// Probes whether a seccomp filter may be set.
pub(super) fn seccomp_filter() -> nix::Result<()> {
    in_child(|| set_filter(0).map(drop))
}

/// Probes whether a seccomp filter with a listener may be set, with `flags` in addition.
pub(super) fn seccomp_listener(flags: c_ulong) -> nix::Result<()> {
    in_child(move || set_filter(NEW_LISTENER | flags).map(drop))
}

/// Probes whether a TAP device can be made in a network namespace of its own.
pub(super) fn taps() -> nix::Result<()> {
    in_child(|| {
        // SAFETY: zeroes are good for plain data; the child ends with all that is made here.
        unsafe {
            outcome(libc::unshare(libc::CLONE_NEWNET).into())?;
            let tun = outcome(libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR).into())?;
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
            outcome(libc::ioctl(tun as c_int, libc::TUNSETIFF as _, &mut request).into()).map(drop)
        }
    })
}

/// Probes whether a listener can hand over the processor with its answer.
pub(super) fn seccomp_sync_wake_up() -> nix::Result<()> {
    in_child(|| {
        let listener = set_filter(NEW_LISTENER)?;
        // SAFETY: the listener is open; the argument is a number.
        outcome(unsafe { libc::ioctl(listener, NOTIF_SET_FLAGS, SYNC_WAKE_UP) }.into()).map(drop)
    })
}

/// Sets a filter that allows everything. It cannot be removed.
fn set_filter(flags: c_ulong) -> nix::Result<c_int> {
    const SET_MODE_FILTER: c_ulong = 1;
    const ALLOW: u32 = 0x7fff_0000;
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut filter = libc::sock_filter { code, jt: 0, jf: 0, k: ALLOW };
    let program = libc::sock_fprog { len: 1, filter: &mut filter };
    // SAFETY: numbers, and a program that outlives the call.
    unsafe {
        outcome(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let set = libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &program);
        outcome(set).map(|fd| fd as c_int)
    }
}

/// Probes whether a child may be traced.
pub(super) fn ptrace_child() -> nix::Result<()> {
    let child = spawn(pause_for_ever)?;
    let seized = seize(child);
    end(child);
    seized
}

/// Probes whether a process that is no descendant may be traced.
pub(super) fn ptrace_stranger() -> nix::Result<()> {
    let (mut reader, writer) = pipe()?;
    let fd = writer.as_raw_fd();
    let parent = spawn(move || {
        if let Ok(child) = spawn(pause_for_ever) {
            let bytes = child.to_ne_bytes();
            // SAFETY: the bytes are there, and the descriptor is open in this copy of the process.
            unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        }
    })?;
    drop(writer);
    wait(parent)?;
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).map_err(|_| Errno::EAGAIN)?;
    let stranger = pid_t::from_ne_bytes(bytes);
    let seized = seize(stranger);
    end(stranger);
    seized
}

fn seize(pid: pid_t) -> nix::Result<()> {
    // SAFETY: no memory of ours is involved.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_EXITKILL) };
    outcome(seized).map(drop)
}

/// Probes whether code can be mapped from memory.
pub(super) fn memfd_exec() -> nix::Result<()> {
    const EXEC: libc::c_uint = 0x10;
    let make = |flags| {
        // SAFETY: the name is a C string.
        outcome(unsafe { libc::memfd_create(c"lorentz-doctor".as_ptr(), flags) }.into())
    };
    // Kernels before 6.3 have no such flag and need none.
    let raw = make(libc::MFD_CLOEXEC | EXEC).or_else(|_| make(libc::MFD_CLOEXEC))?;
    // SAFETY: opened just now, and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(raw as c_int) });
    file.set_len(4096)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    let rights = libc::PROT_READ | libc::PROT_EXEC;
    try_mapping(ptr::null_mut(), 4096, rights, libc::MAP_PRIVATE, file.as_raw_fd())
}

/// Probes whether the shim's addresses are free in this process, as the kernel has laid it out.
pub(super) fn low_address() -> nix::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    try_mapping(SHIM_ADDRESS as *mut _, SHIM_LENGTH, libc::PROT_NONE, flags, -1)
}

/// Makes a mapping and removes it.
fn try_mapping(
    address: *mut libc::c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    fd: c_int,
) -> nix::Result<()> {
    // SAFETY: a new mapping that replaces none (no MAP_FIXED), removed before anybody uses it.
    unsafe {
        let mapped = libc::mmap(address, length, rights, flags, fd, 0);
        if mapped == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        libc::munmap(mapped, length);
        // Kernels that do not know the flag treat the address as a wish.
        if !address.is_null() && mapped != address {
            return Err(Errno::EEXIST);
        }
    }
    Ok(())
}

/// Probes whether namespaces can be made.
pub(super) fn unshare(kinds: c_int) -> nix::Result<()> {
    // SAFETY: no memory is involved.
    in_child(move || outcome(unsafe { libc::unshare(kinds) }.into()).map(drop))
}

/// Probes whether a control group can be made, and stops a task.
pub(super) fn cgroup_freeze() -> Result<String, &'static str> {
    let group = Cgroup::create(CgroupPlace::Own, "doctor", &mut |_| Ok(()))
        .ok_or("no cgroup v2 hierarchy that can be written to")?;
    let child = spawn(pause_for_ever).map_err(|_| "no child could be started")?;
    let frozen = match group.add(child as u32) {
        Ok(()) => group.freeze().map_err(|_| "the group could not be frozen"),
        Err(_) => Err("no process may be moved into a group"),
    };
    group.thaw();
    end(child);
    group.remove();
    match frozen? {
        true => Ok("a task can be stopped and let go".to_string()),
        false => Err("a task did not stop in time"),
    }
}

/// Probes whether the kernel knows epoll_pwait2.
pub(super) fn epoll_pwait2() -> nix::Result<()> {
    // SAFETY: no such descriptor, so nothing is read or written.
    let tried = unsafe { libc::syscall(libc::SYS_epoll_pwait2, -1, 0, 0, 0, 0, 0) };
    match outcome(tried) {
        Err(Errno::ENOSYS) => Err(Errno::ENOSYS),
        Err(Errno::EPERM) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

/// Probes whether the kernel knows FUTEX_LOCK_PI2.
pub(super) fn futex_lock_pi2() -> nix::Result<()> {
    const LOCK_PI2_PRIVATE: c_int = 13 | libc::FUTEX_PRIVATE_FLAG;
    const UNLOCK_PI_PRIVATE: c_int = libc::FUTEX_UNLOCK_PI | libc::FUTEX_PRIVATE_FLAG;
    let mut word = 0_u32;
    let word = ptr::addr_of_mut!(word);
    // SAFETY: the word outlives both calls; there is no deadline.
    unsafe {
        outcome(libc::syscall(libc::SYS_futex, word, LOCK_PI2_PRIVATE, 0, 0, 0, 0))?;
        outcome(libc::syscall(libc::SYS_futex, word, UNLOCK_PI_PRIVATE, 0, 0, 0, 0)).map(drop)
    }
}

/// Probes whether rdtsc can be made to trap.
pub(super) fn tsc_trap() -> nix::Result<()> {
    in_child(|| {
        // SAFETY: PR_SET_TSC takes no pointer. The child reads no TSC before it ends.
        let result = unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) };
        outcome(result.into()).map(drop)
    })
}

/// Result of a system call.
fn outcome(value: c_long) -> nix::Result<c_long> {
    if value == -1 {
        Err(Errno::last())
    } else {
        Ok(value)
    }
}

/// Runs `probe` in a child that ends with it, and hands its result back.
fn in_child(probe: impl FnOnce() -> nix::Result<()>) -> nix::Result<()> {
    let child = spawn(move || {
        let status = probe().map_or_else(|errno| errno as c_int, |()| 0);
        // SAFETY: ends this copy of the process without running anything of the original's.
        unsafe { libc::_exit(status) }
    })?;
    match wait(child)? {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// Starts a child that runs `body` and ends. `body` makes system calls only: locks that other threads held at the fork stay held in
/// the child for ever.
fn spawn(body: impl FnOnce()) -> nix::Result<pid_t> {
    // SAFETY: the child keeps to the rule above.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(CHILD_TIMEOUT_SECS) };
        body();
        // SAFETY: as in `in_child`.
        unsafe { libc::_exit(0) }
    }
    outcome(pid.into()).map(|pid| pid as pid_t)
}

fn pause_for_ever() {
    loop {
        // SAFETY: no arguments. The alarm or the parent ends it.
        unsafe { libc::pause() };
    }
}

/// Waits for a child and returns its exit status.
fn wait(child: pid_t) -> nix::Result<c_int> {
    let mut status = 0;
    // SAFETY: the status may be written.
    while unsafe { libc::waitpid(child, &mut status, libc::__WALL) } == -1 {
        if Errno::last() != Errno::EINTR {
            return Err(Errno::last());
        }
    }
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { KILLED })
}

/// Kills a process that was started here, and waits for it if it is a child of this process.
fn end(pid: pid_t) {
    // SAFETY: no memory is involved; it has not been waited for, so the number is still its own.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let _ = wait(pid);
}

fn pipe() -> nix::Result<(File, OwnedFd)> {
    let (reader, writer) = nix::unistd::pipe()?;
    Ok((File::from(reader), writer))
}
