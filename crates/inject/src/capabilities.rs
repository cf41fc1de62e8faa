//! The capabilities that installing a filter needs, lent to a process that lacks them and given back.

use std::fs;
use std::io;

use crate::borrowed_thread::BorrowedThread;
use crate::trace::TracedThread;

const CAP_SETPCAP: u32 = 8;
const CAP_SYS_ADMIN: u32 = 21;
/// One of them installs filters, the other gives both up.
const NEEDED: [u32; 2] = [CAP_SYS_ADMIN, CAP_SETPCAP];

/// Capability sets of a thread: bit N stands for capability N (capabilities(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// The effective set.
    pub effective: u64,
    /// The permitted set.
    pub permitted: u64,
    /// The bounding set.
    pub bounding: u64,
}

impl Capabilities {
    /// Reads the sets of process `pid`, if it may install no filter: it has neither CAP_SYS_ADMIN nor `no_new_privs`.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn of_unable(pid: u32) -> io::Result<Option<Capabilities>> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let set = |name| read_set(&status, name);
        let sets = Capabilities {
            effective: set("CapEff:")?,
            permitted: set("CapPrm:")?,
            bounding: set("CapBnd:")?,
        };
        let is_able = sets.effective & 1 << CAP_SYS_ADMIN != 0 || set("NoNewPrivs:")? != 0;
        Ok(Some(sets).filter(|_| !is_able))
    }

    /// These sets and the capabilities that are needed.
    pub fn lent(self) -> Capabilities {
        let more: u64 = NEEDED.iter().map(|number| 1 << number).sum();
        Capabilities {
            effective: self.effective | more,
            permitted: self.permitted | more,
            bounding: self.bounding | more,
        }
    }

    /// Gives the borrowed `thread` these sets in place of [`Capabilities::lent`]. `scratch` is memory of its process.
    pub(crate) fn give_back(
        self,
        thread: TracedThread,
        borrowed: &BorrowedThread,
        scratch: u64,
    ) -> io::Result<()> {
        const DROP: u64 = libc::PR_CAPBSET_DROP as u64;
        for number in NEEDED.iter().filter(|number| self.bounding & 1 << *number == 0) {
            borrowed.must(libc::SYS_prctl, [DROP, u64::from(*number), 0, 0, 0, 0])?;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", thread.0))?;
        let inheritable = read_set(&status, "CapInh:")?;
        // The structures of capset(2), version 3: the lower halves of the sets, then the upper ones.
        const VERSION_3: u32 = 0x2008_0522;
        let mut words = vec![VERSION_3, 0];
        for shift in [0, 32] {
            let half = |set: u64| (set >> shift) as u32;
            words.extend([half(self.effective), half(self.permitted), half(inheritable)]);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        thread.write(scratch, &bytes)?;
        borrowed.must(libc::SYS_capset, [scratch, scratch + 8, 0, 0, 0, 0]).map(drop)
    }
}

/// Reads a hexadecimal number of /proc/PID/status.
fn read_set(status: &str, name: &str) -> io::Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let value = value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
    value.ok_or_else(|| io::Error::other(format!("/proc/PID/status has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_can_install_filters() {
        let status = "CapPrm:\t0000000000000020\nNoNewPrivs:\t0\n";
        assert_eq!(read_set(status, "CapPrm:").unwrap(), 0x20);
        assert!(read_set(status, "CapEff:").is_err());
        let own = Capabilities { effective: 1, permitted: 2, bounding: 1 << CAP_SETPCAP };
        let lent = own.lent();
        assert_eq!((lent.effective, lent.permitted), (0x20_0101, 0x20_0102));
        assert_eq!(lent.bounding, 0x20_0100);
    }
}
