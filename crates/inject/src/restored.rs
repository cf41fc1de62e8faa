//! Processes that CRIU has restored. They have the shim and the filter, but the filter's listener is gone, and their CPU clocks begin
//! at 0.
//!
//! The control group of the processes is frozen when they are stopped here, and thawed while they are adopted:
//!
//! ```text
//! restore                         each process
//!   freeze, CRIU restores ------>  frozen before its first instruction
//!   stop (ptrace) -------------->  stopped
//!   thaw, adopt ---------------->  one thread: the filter with a listener, the clock mapped anew
//!   freeze, go on -------------->  frozen
//!   unfreeze the clock --------->  each thread looks at the clock first
//! ```

use crate::attach::{map_scratch, sock_fprog, StoppedProcess, SCRATCH};
use crate::borrowed_thread::BorrowedThread;
use crate::capabilities::Capabilities;
use crate::launch::duplicate_fd;
use crate::monitor::ExecMonitor;
use crate::namespace::own_time_offsets;
use crate::trace::TracedThread;
use crate::{Error, Result};
use lorentz_clock::{file, PidNamespace, ProcessId, Rate, Registry};
use lorentz_shim::filter::{flag, Program, ASK_MONITOR, SET_MODE_FILTER};
use lorentz_shim::gate::RETRY;
use lorentz_shim::layout::{
    space_address, time_offset_addresses, CpuAnchor, CLOCK, FORK_DATA, IMAGE, REGISTRY,
};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

const PAGE: u64 = 4096;

/// The CPU time that a process and its threads have used, by the kernel, ns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuTimes {
    /// The process's.
    pub process: i64,
    /// That of each thread, with the thread's number in its own process id namespace.
    pub threads: Vec<(u32, i64)>,
}

impl CpuTimes {
    /// Reads the CPU clocks of process `pid`.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn read(pid: u32) -> io::Result<CpuTimes> {
        let clock = clock_getcpuclockid(Pid::from_raw(pid as i32))?;
        let now = clock_gettime(clock)?;
        let mut threads = Vec::new();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let number = ProcessId::number_inside(&fs::read_to_string(task.join("status"))?);
            let used = fs::read_to_string(task.join("schedstat"))?;
            let used = used.split(' ').next().and_then(|nanos| nanos.parse().ok());
            threads.extend(number.zip(used));
        }
        let process = now.tv_sec() * 1_000_000_000 + now.tv_nsec();
        Ok(CpuTimes { process, threads })
    }
}

/// A process as it was when it was saved.
pub struct SavedProcess {
    /// The CPU time that it had used.
    pub used: CpuTimes,
    /// The capabilities of its first thread, if the images lend it others.
    pub own: Option<Capabilities>,
    /// [`crate::Shim::gate_done`].
    pub gate_done: Option<u64>,
}

/// A restored process, stopped. It goes on when this value is dropped.
pub struct RestoredProcess(StoppedProcess);

impl RestoredProcess {
    /// Stops all threads of process `pid`, which may be in a frozen control group.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] says why.
    pub fn stop(pid: u32) -> Result<RestoredProcess> {
        let pid = Pid::from_raw(pid as i32);
        let stopped = StoppedProcess::stop(pid);
        let mut stopped = stopped.map_err(|e| Error::Refused(format!("process {pid}: {e}")))?;
        // The first thread is the one that was lent capabilities.
        stopped.threads.sort_by_key(|thread| thread.0 != pid.as_raw());
        Ok(RestoredProcess(stopped))
    }

    /// Makes `monitor` supervise the process, which is in namespace `space` of the registry and was `saved` so. `rate` is that of the
    /// monitor's clock. The process's control group is thawed.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] says why. The process cannot go on then.
    pub fn adopt(
        &self,
        monitor: &mut ExecMonitor,
        space: PidNamespace,
        rate: Rate,
        saved: &SavedProcess,
    ) -> Result<()> {
        let refused = |error: io::Error| Error::Refused(format!("process {}: {error}", self.0.pid));
        self.tell_where_it_is(space).map_err(refused)?;
        for thread in &self.0.threads {
            repeat_wait(*thread, saved.gate_done).map_err(refused)?;
        }
        let listener = self.bring_back(monitor, saved.own).map_err(refused)?;
        if monitor.policy().trap_tsc {
            self.trap_tsc().map_err(refused)?;
        }
        self.continue_cpu_clocks(&saved.used, rate).map_err(refused)?;
        monitor.add_listener(listener);
        Ok(())
    }

    /// Writes the namespaces into the shim's data. The process is in the time namespace of this one.
    fn tell_where_it_is(&self, space: PidNamespace) -> io::Result<()> {
        let first = self.0.threads[0];
        first.write(space_address() as u64, &space.bits().to_ne_bytes())?;
        let [from_page, from_machine] = time_offset_addresses();
        first.write(from_page as u64, &[0; 16])?;
        let offsets = own_time_offsets().map(i64::to_ne_bytes);
        first.write(from_machine as u64, &offsets.concat())
    }

    fn bring_back(&self, monitor: &ExecMonitor, own: Option<Capabilities>) -> io::Result<OwnedFd> {
        // The filter lets calls from the image through.
        let borrowed = BorrowedThread::at(self.0.threads[0], IMAGE as u64)?;
        let scratch = map_scratch(&borrowed)?;
        let listener = self.listen(&borrowed, scratch)?;
        map_clock(&borrowed, monitor, &listener)?;
        // CRIU before 4.2 does not keep this.
        let wipe_on_fork = libc::MADV_WIPEONFORK as u64;
        borrowed.must(libc::SYS_madvise, [FORK_DATA as u64, PAGE, wipe_on_fork, 0, 0, 0])?;
        if let Some(own) = own {
            own.give_back(self.0.threads[0], &borrowed, scratch)?;
        }
        borrowed.must(libc::SYS_munmap, [scratch, SCRATCH, 0, 0, 0, 0])?;
        Ok(listener)
    }

    /// Makes rdtsc fault in each thread again. CRIU does not save that it did.
    fn trap_tsc(&self) -> io::Result<()> {
        const TRAP: [u64; 6] = [libc::PR_SET_TSC as u64, libc::PR_TSC_SIGSEGV as u64, 0, 0, 0, 0];
        for thread in &self.0.threads {
            BorrowedThread::at(*thread, IMAGE as u64)?.must(libc::SYS_prctl, TRAP)?;
        }
        Ok(())
    }

    /// Installs the filter of an adopted process in all threads, and returns its listener.
    fn listen(&self, borrowed: &BorrowedThread, scratch: u64) -> io::Result<OwnedFd> {
        let program = Program::of_adopted();
        self.0.threads[0].write(scratch, &sock_fprog(scratch, program.code()))?;
        let words = [u64::from(SET_MODE_FILTER), u64::from(flag::LISTENING_LIVE), scratch, 0, 0, 0];
        let number = borrowed.must(libc::SYS_seccomp, words)?;
        let listener = duplicate_fd(self.0.pid, number as i32).map_err(io::Error::other)?;
        borrowed.must(libc::SYS_close, [number, 0, 0, 0, 0, 0])?;
        Ok(listener)
    }

    /// Writes into the shim's data how much less the kernel's CPU clocks show than before.
    fn continue_cpu_clocks(&self, used: &CpuTimes, rate: Rate) -> io::Result<()> {
        let rate = (rate.num(), rate.den());
        let now = CpuTimes::read(self.0.pid.as_raw() as u32)?;
        self.continue_cpu_clock(0, 0, used.process - now.process, rate)?;
        for (thread, before) in &used.threads {
            let Some((_, after)) = now.threads.iter().find(|(other, _)| other == thread) else {
                continue;
            };
            if let Some(place) = self.anchor_of(*thread)? {
                self.continue_cpu_clock(place, *thread, before - after, rate)?;
            }
        }
        Ok(())
    }

    fn continue_cpu_clock(
        &self,
        place: usize,
        thread: u32,
        lost: i64,
        rate: (u64, u64),
    ) -> io::Result<()> {
        let address = CpuAnchor::address(place) as u64;
        let mut before = [0; CpuAnchor::LEN];
        self.0.threads[0].read(address, &mut before)?;
        self.0.threads[0].write(address, &CpuAnchor::continued(&before, thread, lost, rate))
    }

    /// The place of a thread's anchor, or the first free one, in the order in which the shim looks.
    fn anchor_of(&self, thread: u32) -> io::Result<Option<usize>> {
        let mut free = None;
        for place in CpuAnchor::places(thread) {
            let mut owner = [0; 4];
            self.0.threads[0].read(CpuAnchor::address(place) as u64, &mut owner)?;
            match u32::from_ne_bytes(owner) {
                own if own == thread => return Ok(Some(place)),
                0 if free.is_none() => free = Some(place),
                _ => {}
            }
        }
        Ok(free)
    }
}

/// The filter that an adoption adds, as the kernel has it.
pub fn adopted_filter() -> Vec<u8> {
    Program::of_adopted().code().iter().flat_map(|one| one.to_bytes()).collect()
}

/// Makes a thread that CRIU has broken off in a wait look at the clock anew. The clock-change signal does the same where it is not
/// blocked at that moment. `gate_done` is [`crate::Shim::gate_done`].
fn repeat_wait(thread: TracedThread, gate_done: Option<u64>) -> io::Result<()> {
    const EINTR: i64 = -(libc::EINTR as i64);
    let mut regs = thread.registers()?;
    if gate_done != Some(regs.rip) || regs.rax as i64 != EINTR {
        return Ok(());
    }
    let mut mark = [0; 8];
    thread.read(regs.r13, &mut mark)?;
    // A handler of the program's has interrupted the call.
    if mark != [0; 8] {
        return Ok(());
    }
    regs.rax = RETRY as u64;
    thread.set_registers(&regs)
}

/// Maps the clock's file anew. CRIU maps both parts by one descriptor, through which a program could make the page writable.
fn map_clock(
    borrowed: &BorrowedThread,
    monitor: &ExecMonitor,
    listener: &OwnedFd,
) -> io::Result<()> {
    const READ: u64 = libc::PROT_READ as u64;
    const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    const SHARED: u64 = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
    let ([_, page, registry], _) = monitor.injection_parts();
    let send =
        |file: &OwnedFd| borrowed.receive_fd(ASK_MONITOR.number(), listener.as_fd(), file.as_fd());
    let map = |file: &OwnedFd, address: usize, len: u64, access: u64, offset: usize| {
        let fd = u64::from(send(file)?);
        borrowed.must(libc::SYS_mmap, [address as u64, len, access, SHARED, fd, offset as u64])?;
        borrowed.must(libc::SYS_close, [fd, 0, 0, 0, 0, 0])
    };
    map(page, CLOCK, PAGE, READ, 0)?;
    let len = size_of::<Registry>() as u64;
    map(registry, REGISTRY, len, READ_WRITE, file::REGISTRY_OFFSET)?;
    let random = libc::MADV_RANDOM as u64;
    borrowed.must(libc::SYS_madvise, [REGISTRY as u64, len, random, 0, 0, 0]).map(drop)
}
