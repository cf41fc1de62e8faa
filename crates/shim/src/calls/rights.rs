//! The rights of a process.

use crate::call::Call;
use crate::sys::{sys, Errno, SysResult, Sysno, UserPtr};
use crate::user::Access;

/// struct __user_cap_header_struct: the version and a process id.
pub type Header = [u32; 2];
/// Two struct __user_cap_data_struct, for capabilities from 0 and from 32: effective, permitted, inheritable.
pub type Capabilities = [[u32; 3]; 2];

/// capset(2) in a private node: a process gets those of the capabilities it asks for that it may have.
///
/// No private node has CAP_SYS_ADMIN. The daemons of FRR ask for it and end where the kernel refuses, although they need
/// it for network namespaces of their own alone.
pub fn capset(call: &Call, header: UserPtr<Header>, asked: UserPtr<Capabilities>) -> SysResult {
    const VERSION_3: u32 = 0x2008_0522;
    let result = call.by_kernel();
    if result != Err(Errno::EPERM) || header.read()?[0] != VERSION_3 {
        return result;
    }
    let mut had = Capabilities::default();
    // SAFETY: the kernel checks the header, and writes two entries, as of version 3.
    unsafe { sys!(Sysno::capget, header, &raw mut had)? };
    let allowed = narrowed(asked.read()?, had);
    // SAFETY: a copy of what the program asked for.
    unsafe { call.by_kernel_with(1, UserPtr::to(&allowed)) }
}

/// Takes from `asked` what a process that has `had` may not have.
fn narrowed(asked: Capabilities, had: Capabilities) -> Capabilities {
    let mut allowed = asked;
    for ([effective, permitted, inheritable], [_, may_have, inherits]) in
        allowed.iter_mut().zip(had)
    {
        *permitted &= may_have;
        *effective &= *permitted;
        *inheritable &= may_have | inherits;
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_had_is_taken_away() {
        const ADMIN: u32 = 1 << 21;
        const RAW: u32 = 1 << 13;
        let had = [[0, RAW, ADMIN], [0, 0, 0]];
        let asked = [[RAW | ADMIN, RAW | ADMIN, RAW | ADMIN | 1], [1, 1, 1]];
        assert_eq!(narrowed(asked, had), [[RAW, RAW, RAW | ADMIN], [0, 0, 0]]);
        let less = [[0, RAW, 0], [0, 0, 0]];
        assert_eq!(narrowed(less, had), less);
    }
}
