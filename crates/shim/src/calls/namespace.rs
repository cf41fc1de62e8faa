//! Time namespaces: unshare and setns.

use crate::call::Call;
use crate::sys::SysResult;
use crate::time_namespace;

/// unshare(2) with CLONE_NEWTIME: this process stays where it is, the children that it forks do not.
pub fn unshare(call: &Call) -> SysResult {
    time_namespace::begin_elsewhere_for_children();
    call.by_kernel()
}

/// setns(2).
pub fn setns(call: &Call) -> SysResult {
    let before = time_namespace::offsets();
    let result = call.by_kernel()?;
    time_namespace::entered(before);
    Ok(result)
}
