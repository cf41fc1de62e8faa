//! Programs that go on in another process id namespace.

use std::io;

use lorentz_clock::PidNamespace;

use crate::numbers::namespace_of;
use crate::Clock;

impl Clock {
    /// Makes the clock find all programs of process id namespace `from`, by the numbers that the registry tells, in that of `pid`.
    /// `from` is the inode of a namespace; none for that of the monitor.
    /// Nobody may use the registry meanwhile ([`lorentz_clock::Registry::relocate`]).
    ///
    /// # Errors
    ///
    /// If `pid` has ended, or the registry has no room for a namespace or a timer.
    pub fn relocate(&self, from: Option<u32>, pid: u32) -> io::Result<PidNamespace> {
        let inode = namespace_of(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let registry = self.registry();
        let no_room = || io::Error::other("the clock has no room for the programs' timers");
        let add = |inode| registry.pid_namespaces.find_or_add(inode).ok_or_else(no_room);
        let (from, to) = (from.map_or(Ok(PidNamespace::MONITOR), add)?, add(inode)?);
        registry.relocate(from, to).then_some(to).ok_or_else(no_room)
    }
}
