//! Programs that go on in another process id namespace.

use std::io;

use lorentz_clock::PidNamespace;

use crate::numbers::namespace_of;
use crate::Clock;

impl Clock {
    /// Makes the clock find all programs, which have the numbers that the registry tells, in the process id namespace of `pid`.
    /// Nobody may use the registry meanwhile ([`lorentz_clock::Registry::relocate`]).
    ///
    /// # Errors
    ///
    /// If `pid` has ended, or the registry has no room for a namespace or a timer.
    pub fn relocate(&self, pid: u32) -> io::Result<PidNamespace> {
        let inode = namespace_of(pid).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let registry = self.registry();
        let no_room = || io::Error::other("the clock has no room for the programs' timers");
        let to = registry.pid_namespaces.find_or_add(inode).ok_or_else(no_room)?;
        registry.relocate(PidNamespace::MONITOR, to).then_some(to).ok_or_else(no_room)
    }
}
