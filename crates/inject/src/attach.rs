//! Attaching a process that is already running.
//!
//! The monitor stops all threads of the process. It borrows the first thread, which then installs the filter for all of them,
//! runs the boot code, and moves the kernel's vDSO. A copy takes the vDSO's place, whose functions jump to the shim; the
//! original serves the shim from its new address. A thread that was waiting makes its system call again. The filter traps that
//! call, and the shim waits for the rest of the time.

use crate::boot_stub;
use crate::borrowed_thread::{BorrowedThread, ALL_BUT_BREAKPOINT};
use crate::events::open_signalfd;
use crate::last_run::LastRun;
use crate::launch::duplicate_fd;
use crate::managed_clock::TargetClock;
use crate::monitor::ExecMonitor;
use crate::trace::{has_ended, TracedThread};
use crate::tracee::tracer_of;
use crate::{filter, namespace, sockets, timers, Error, Result};
use lorentz_clock::ProcessId;
use lorentz_shim::boot::BootArgs;
use lorentz_shim::filter::{flag, Instruction, Program, ASK_MONITOR, SET_MODE_FILTER};
use lorentz_shim::layout::{self, Credit, CLOCK, CREDITS, IMAGE};
use lorentz_shim::sys::sig;
use lorentz_syscalls::Restart;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Length of the scratch memory in the process, bytes. The filter stands at its start, the boot code's stack at its end.
pub(crate) const SCRATCH: u64 = 128 * 1024;
/// How long a thread may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const DOES_NOT_STOP: &str =
    "a thread of it does not stop: it waits in the kernel for a device, or for a vfork child to execute a program";

impl ExecMonitor {
    /// Makes a monitor that has launched no program.
    pub fn without_program(target: TargetClock) -> Result<ExecMonitor> {
        ExecMonitor::new(target, open_signalfd()?)
    }

    /// Brings process `pid` in, with all its threads. This monitor does not wait for the process to exit.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] says why the process cannot be brought in. If the shim cannot be put in after the filter was
    /// installed, the process is ended.
    pub fn attach(&mut self, pid: Pid) -> Result<()> {
        let refused = |error: io::Error| Error::Refused(format!("process {pid}: {error}"));
        let stopped = StoppedProcess::stop(pid).map_err(refused)?;
        check_preconditions(pid).map_err(refused)?;
        stopped.take_forced_signals().map_err(refused)?;
        let listener = stopped.bring_in(self)?;
        self.add_listener(listener);
        Ok(())
    }
}

/// Checks, before anything is changed, that the addresses are free and that the kernel offers all that is needed.
fn check_preconditions(pid: Pid) -> io::Result<()> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    for line in maps.lines() {
        if let Some((start, end, _)) = mapping(line) {
            let end_of_ours = (CLOCK + lorentz_clock::file::LEN) as u64;
            if start < end_of_ours && end > IMAGE as u64 {
                return Err(io::Error::other("the addresses from 0x70000000 on are taken"));
            }
        }
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let strict = status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('1'));
    if strict {
        return Err(io::Error::other("it is under strict seccomp"));
    }
    Ok(())
}

/// Splits a line of /proc/PID/maps into start, end and the rest.
fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, rest))
}

/// A process with all its threads stopped. The threads go on when this value is dropped.
pub(crate) struct StoppedProcess {
    pub pid: Pid,
    pub threads: Vec<TracedThread>,
    /// When each thread last ran before it was stopped, where the kernel tells.
    last_runs: HashMap<TracedThread, LastRun>,
}

impl StoppedProcess {
    /// Stops every thread, including those that are started meanwhile.
    pub fn stop(pid: Pid) -> io::Result<StoppedProcess> {
        let mut stopped = StoppedProcess { pid, threads: Vec::new(), last_runs: HashMap::new() };
        loop {
            let known = stopped.threads.len();
            for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
                let number = entry?.file_name().to_str().and_then(|n| n.parse().ok());
                let Some(thread) =
                    number.map(TracedThread).filter(|t| !stopped.threads.contains(t))
                else {
                    continue;
                };
                let last_run = LastRun::of(pid, thread);
                let seized = thread.seize().or_else(|error| match tracer_of(thread) {
                    // The monitor holds it already.
                    Some(tracer) if tracer == std::process::id() as i32 => Ok(()),
                    _ => Err(error),
                });
                match seized.and_then(|()| thread.stop(Instant::now() + STOP_TIMEOUT)) {
                    Ok(true) => {
                        stopped.threads.push(thread);
                        stopped.last_runs.extend(last_run.map(|last| (thread, last)));
                    }
                    Ok(false) => return Err(io::Error::other(DOES_NOT_STOP)),
                    // The thread has ended meanwhile.
                    Err(error) if has_ended(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            if stopped.threads.len() == known {
                break;
            }
        }
        if stopped.threads.is_empty() {
            return Err(io::Error::other("it has ended"));
        }
        Ok(stopped)
    }

    fn bring_in(&self, monitor: &ExecMonitor) -> Result<OwnedFd> {
        let refused = |error: io::Error| Error::Refused(format!("process {}: {error}", self.pid));
        let first = self.threads[0];
        const COMPATIBILITY_SEGMENT: u64 = 0x23;
        if first.registers().map_err(refused)?.cs == COMPATIBILITY_SEGMENT {
            return Err(refused(io::Error::other("it is a 32-bit program")));
        }
        let vdso = Vdso::of(self.pid).map_err(refused)?;
        self.leave_vdso(&vdso).map_err(refused)?;
        let waits = self.waits();
        let listener = {
            let borrowed = BorrowedThread::new(first).map_err(refused)?;
            let scratch = map_scratch(&borrowed).map_err(refused)?;
            let timers = timers::find(self.pid, &borrowed, scratch).map_err(refused)?;
            let sockets = sockets::find(first, &borrowed, scratch).map_err(refused)?;
            let (files, _) = monitor.injection_parts();
            let fds = match borrowed.receive_files(scratch, files) {
                Ok(fds) => Some(fds),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    return Err(refused(error))
                }
                // A sandbox that refuses sockets may let the filter's own call through.
                Err(_) if lets_ask_monitor(&borrowed) => None,
                Err(error) => {
                    let what =
                        format!("its seccomp filter refuses the monitor's descriptors: {error}");
                    return Err(refused(io::Error::other(what)));
                }
            };
            let program = Program::of_running(monitor.policy(), &sockets::extras(&sockets));
            let installed = self.install_filter(&borrowed, scratch, program.code());
            if installed.is_err() {
                for fd in fds.into_iter().flatten() {
                    let _ = borrowed.call(libc::SYS_close, [u64::from(fd), 0, 0, 0, 0, 0]);
                }
            }
            let listener = installed?;
            // From here on there is no way back: without the shim the filter would end the program.
            let injected = inject_shim(&borrowed, scratch, monitor, &listener, &vdso, fds);
            let done = injected.and_then(|()| write_credit(first, &waits));
            let done = done.and_then(|()| sockets::adopt(first, &sockets));
            let done = done.and_then(|()| {
                let number = namespace::number_inside(self.pid.as_raw() as u32)?;
                let owner = ProcessId::new(monitor.namespace_of(first)?, number);
                timers::adopt(owner, &timers, &monitor.clock()?);
                Ok(())
            });
            done.map_err(|error| self.end(&error))?;
            let _ = borrowed.call(libc::SYS_munmap, [scratch, SCRATCH, 0, 0, 0, 0]);
            listener
        };
        self.unblock_our_signals().map_err(|error| self.end(&error))?;
        waits.iter().for_each(InterruptedWait::repeat_call);
        Ok(listener)
    }

    /// Ends the process, which has the filter and cannot go on. Returns what to say.
    fn end(&self, error: &io::Error) -> Error {
        let _ = kill(self.pid, Signal::SIGKILL);
        Error::Refused(format!("process {}: {error}; it could not go on and is ended", self.pid))
    }

    /// Installs the filter in all threads. If the kernel requires it, the process sets no_new_privs first.
    fn install_filter(
        &self,
        borrowed: &BorrowedThread,
        scratch: u64,
        code: &[Instruction],
    ) -> Result<OwnedFd> {
        let refused = |error: io::Error| Error::Refused(format!("process {}: {error}", self.pid));
        self.threads[0].write(scratch, &sock_fprog(scratch, code)).map_err(refused)?;
        let install = || {
            let [mode, flags] = [SET_MODE_FILTER, flag::LISTENING_LIVE].map(u64::from);
            borrowed.call(libc::SYS_seccomp, [mode, flags, scratch, 0, 0, 0])
        };
        let mut result = install().map_err(refused)?;
        if result == -i64::from(libc::EACCES) {
            let no_new_privs = [libc::PR_SET_NO_NEW_PRIVS as u64, 1, 0, 0, 0, 0];
            borrowed.must(libc::SYS_prctl, no_new_privs).map_err(refused)?;
            result = install().map_err(refused)?;
        }
        if result < 0 {
            return Err(filter::explain(io::Error::from_raw_os_error(-result as i32)));
        }
        let listener = duplicate_fd(self.pid, result as i32)
            .map_err(|error| self.end(&io::Error::other(error.to_string())))?;
        let _ = borrowed.call(libc::SYS_close, [result as u64, 0, 0, 0, 0, 0]);
        Ok(listener)
    }

    /// Steps threads out of the kernel's vDSO, before it moves.
    fn leave_vdso(&self, vdso: &Vdso) -> io::Result<()> {
        const MAX_STEPS: u32 = 100_000;
        for thread in &self.threads {
            if !vdso.code.contains(&thread.registers()?.rip) {
                continue;
            }
            let mask = thread.mask()?;
            // No handler of the program runs meanwhile.
            thread.set_mask(ALL_BUT_BREAKPOINT)?;
            for _ in 0..MAX_STEPS {
                if !vdso.code.contains(&thread.registers()?.rip) {
                    break;
                }
                thread.step()?;
                thread.wait()?;
            }
            thread.set_mask(mask)?;
        }
        Ok(())
    }

    /// Unblocks the shim's signals in all threads.
    fn unblock_our_signals(&self) -> io::Result<()> {
        for thread in &self.threads {
            let mask = thread.mask()?;
            if mask & sig::OURS.bits() != 0 {
                thread.set_mask(mask & !sig::OURS.bits())?;
            }
        }
        Ok(())
    }

    /// Returns the threads that wait with a timeout, and how long each has waited.
    fn waits(&self) -> Vec<InterruptedWait> {
        let elapsed = |thread: &TracedThread| {
            let last_run = self.last_runs.get(thread)?;
            // The stop ends one run. A thread that has had another one since began its wait in that.
            let runs = LastRun::of(self.pid, *thread)?.waits - last_run.waits;
            if runs == 1 {
                last_run.elapsed()
            } else {
                None
            }
        };
        let waiting = self.threads.iter().filter_map(|thread| InterruptedWait::of(*thread));
        waiting
            .map(|wait| InterruptedWait {
                elapsed: elapsed(&wait.thread).unwrap_or_default(),
                // Behind the look, which may take some time.
                measured: Instant::now(),
                ..wait
            })
            .collect()
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        for thread in &self.threads {
            let _ = thread.detach();
        }
    }
}

/// Whether the filters that a process has let the call through by which our filter asks the monitor. The kernel has no such call.
fn lets_ask_monitor(borrowed: &BorrowedThread) -> bool {
    let result = borrowed.call(i64::from(ASK_MONITOR.number()), [0; 6]);
    result.is_ok_and(|result| result == -i64::from(libc::ENOSYS))
}

/// A thread that was stopped in a system call that may have a timeout.
#[derive(Clone, Copy)]
struct InterruptedWait {
    thread: TracedThread,
    registers: libc::user_regs_struct,
    /// How long the thread had waited at this instant.
    elapsed: Duration,
    measured: Instant,
}

impl InterruptedWait {
    fn of(thread: TracedThread) -> Option<InterruptedWait> {
        // Results of an interrupted call: one that the kernel would continue by its restart block, one that it would begin anew
        // (io_pgetevents), and one that only our stop interrupted.
        const ERESTART_RESTARTBLOCK: i64 = -516;
        const ERESTARTNOHAND: i64 = -514;
        const EINTR: i64 = -4;
        let registers = thread.registers().ok()?;
        let (call, result) = (registers.orig_rax as i64, registers.rax as i64);
        let broken_off = [ERESTART_RESTARTBLOCK, ERESTARTNOHAND, EINTR].contains(&result);
        let is_timed =
            u32::try_from(call).ok().and_then(lorentz_syscalls::row).is_some_and(|row| {
                matches!(
                    row.restart,
                    Restart::Never | Restart::RestartBlock | Restart::UnlessTimeout
                )
            });
        (is_timed && broken_off).then_some(InterruptedWait {
            thread,
            registers,
            elapsed: Duration::ZERO,
            measured: Instant::now(),
        })
    }

    /// Makes the thread repeat its system call when it goes on.
    fn repeat_call(&self) {
        let mut regs = self.registers;
        regs.rax = regs.orig_rax;
        regs.rip -= 2;
        regs.orig_rax = u64::MAX;
        let _ = self.thread.set_registers(&regs);
    }
}

/// Tells the shim how long the threads have waited already. Their time has gone on while they stood still.
fn write_credit(first: TracedThread, waits: &[InterruptedWait]) -> io::Result<()> {
    for (wait, place) in waits.iter().zip(0..CREDITS) {
        let number = namespace::number_inside(wait.thread.0 as u32)?;
        let elapsed = wait.elapsed + wait.measured.elapsed();
        let credit = Credit::bytes(number, elapsed.as_nanos() as u64);
        first.write(layout::credit_address(place) as u64, &credit)?;
    }
    Ok(())
}

/// Returns a struct sock_fprog for the address `at`. The instructions follow it.
pub(crate) fn sock_fprog(at: u64, code: &[Instruction]) -> Vec<u8> {
    const HEADER: u64 = 16;
    let mut bytes = (code.len() as u64).to_ne_bytes().to_vec();
    bytes.extend((at + HEADER).to_ne_bytes());
    for instruction in code {
        bytes.extend(instruction.to_bytes());
    }
    bytes
}

pub(crate) fn map_scratch(borrowed: &BorrowedThread) -> io::Result<u64> {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    borrowed.must(libc::SYS_mmap, [0, SCRATCH, access, kind, u64::MAX, 0])
}

/// Runs the boot code, then puts a copy of the vDSO that jumps to the shim in the vDSO's place.
fn inject_shim(
    borrowed: &BorrowedThread,
    scratch: u64,
    monitor: &ExecMonitor,
    listener: &OwnedFd,
    vdso: &Vdso,
    fds: Option<[u32; 3]>,
) -> io::Result<()> {
    let (files, args) = monitor.injection_parts();
    let send =
        |file: &OwnedFd| borrowed.receive_fd(ASK_MONITOR.number(), listener.as_fd(), file.as_fd());
    let [image_fd, page_fd, registry_fd] = match fds {
        Some(fds) => fds,
        None => [send(files[0])?, send(files[1])?, send(files[2])?],
    };
    let moved = vdso.move_away(borrowed)?;
    let args = BootArgs {
        image_fd,
        page_fd,
        registry_fd,
        vdso: moved,
        vdso_len: vdso.len(),
        page: 0,
        space: monitor.namespace_of(vdso.thread)?.bits(),
        time_offsets: namespace::time_offsets_from(args.base_offsets, vdso.thread.0)?,
        ..args
    };
    borrowed.run(&boot_stub::bytes(&args), scratch + SCRATCH - 64)
}

/// The kernel's vDSO in a process: its data pages and, last, its code.
struct Vdso {
    thread: TracedThread,
    mappings: Vec<(u64, u64)>,
    code: std::ops::Range<u64>,
}

impl Vdso {
    fn of(pid: Pid) -> io::Result<Vdso> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let ours = |line: &&str| line.ends_with("[vdso]") || line.contains("[vvar");
        let mappings: Vec<(u64, u64)> = maps
            .lines()
            .filter(ours)
            .filter_map(mapping)
            .map(|(start, end, _)| (start, end))
            .collect();
        let code = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(mapping);
        let code = code
            .map(|(start, end, _)| start..end)
            .ok_or_else(|| io::Error::other("it has no vDSO"))?;
        Ok(Vdso { thread: TracedThread(pid.as_raw()), mappings, code })
    }

    fn len(&self) -> u64 {
        self.code.end - self.code.start
    }

    /// Moves the vDSO, each mapping by the same distance, and returns the new address of its code. In the old place comes a
    /// copy whose functions jump to the shim's.
    fn move_away(&self, borrowed: &BorrowedThread) -> io::Result<u64> {
        let original = self.copy()?;
        let start = self.mappings.iter().map(|m| m.0).min().unwrap_or(self.code.start);
        let end = self.mappings.iter().map(|m| m.1).max().unwrap_or(self.code.end);
        let kind = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let room = borrowed.must(libc::SYS_mmap, [0, end - start, 0, kind, u64::MAX, 0])?;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        for (from, to) in &self.mappings {
            let len = to - from;
            borrowed.must(libc::SYS_mremap, [*from, len, len, flags, room + from - start, 0])?;
        }
        let access = (libc::PROT_READ | libc::PROT_EXEC) as u64;
        let fixed = kind | libc::MAP_FIXED_NOREPLACE as u64;
        borrowed.must(libc::SYS_mmap, [self.code.start, self.len(), access, fixed, u64::MAX, 0])?;
        self.thread.write(self.code.start, &with_jumps(original)?)?;
        Ok(room + self.code.start - start)
    }

    fn copy(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len() as usize];
        self.thread.read(self.code.start, &mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the vDSO `bytes` with a jump to the shim in place of every function that the shim has too.
fn with_jumps(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let ours = crate::image::functions();
    let kernels = exported(&object::File::parse(&*bytes).map_err(io::Error::other)?);
    for (name, at) in kernels {
        if let Some((_, target)) = ours.iter().find(|(own, _)| *own == name) {
            // mov $target, %eax; jmp *%rax: the image lies below 4 GiB.
            let mut jump = vec![0xb8];
            jump.extend((*target as u32).to_le_bytes());
            jump.extend([0xff, 0xe0]);
            let at = at as usize;
            bytes[at..at + jump.len()].copy_from_slice(&jump);
        }
    }
    Ok(bytes)
}

fn exported(file: &object::File) -> Vec<(String, u64)> {
    file.dynamic_symbols()
        .filter_map(|symbol| Some((symbol.name().ok()?.to_string(), symbol.address())))
        .filter(|(_, address)| *address != 0)
        .collect()
}
