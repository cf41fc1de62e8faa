//! The bundle's seccomp profile, compiled to a BPF program. Compilation comes before the container, so that its errors can be
//! reported.

use std::fs::File;
use std::io::{Read, Seek};
use std::str::FromStr;

use anyhow::{bail, Context};
use libcontainer::oci_spec::runtime::{Arch, LinuxSeccompAction};
use libseccomp::{
    ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall,
};
use lorentz_inject::Profile;
use nix::sys::memfd::{memfd_create, MFdFlags};
use serde_json::Value;

/// The actions that a profile may have: all but SCMP_ACT_NOTIFY, for the one listener of a process is the clock's monitor.
pub const ACTIONS: [LinuxSeccompAction; 8] = [
    LinuxSeccompAction::ScmpActAllow,
    LinuxSeccompAction::ScmpActErrno,
    LinuxSeccompAction::ScmpActKill,
    LinuxSeccompAction::ScmpActKillProcess,
    LinuxSeccompAction::ScmpActKillThread,
    LinuxSeccompAction::ScmpActLog,
    LinuxSeccompAction::ScmpActTrace,
    LinuxSeccompAction::ScmpActTrap,
];
/// The comparisons of a system call's argument.
pub const OPERATORS: [&str; 7] = [
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_LE",
    "SCMP_CMP_LT",
    "SCMP_CMP_MASKED_EQ",
    "SCMP_CMP_NE",
];
/// The flags of a profile.
pub const FLAGS: [&str; 4] = [
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
];
/// The little-endian architectures. In one filter libseccomp accepts no other byte order than the machine's.
const ARCHITECTURES: [Arch; 12] = [
    Arch::ScmpArchAarch64,
    Arch::ScmpArchArm,
    Arch::ScmpArchLoongarch64,
    Arch::ScmpArchMipsel,
    Arch::ScmpArchMipsel64,
    Arch::ScmpArchMipsel64n32,
    Arch::ScmpArchPpc64le,
    Arch::ScmpArchRiscv64,
    Arch::ScmpArchSh,
    Arch::ScmpArchX32,
    Arch::ScmpArchX86,
    Arch::ScmpArchX86_64,
];

/// Returns the architectures that a profile may name: those that the libseccomp of this machine knows.
pub fn architectures() -> anyhow::Result<Vec<Arch>> {
    let mut context = ScmpFilterContext::new(ScmpAction::Allow)?;
    let known = ARCHITECTURES.into_iter().filter(|arch| {
        ScmpArch::from_str(&arch.to_string()).is_ok_and(|arch| context.add_arch(arch).is_ok())
    });
    Ok(known.collect())
}

/// Compiles `linux.seccomp` of a config.json; none if there is none.
pub fn profile(seccomp: &Value) -> anyhow::Result<Option<Profile>> {
    if seccomp.is_null() {
        return Ok(None);
    }
    let context = translate(seccomp).context("linux.seccomp")?;
    let mut file = File::from(memfd_create(c"profile", MFdFlags::MFD_CLOEXEC)?);
    context.export_bpf(&file).context("linux.seccomp")?;
    file.rewind()?;
    let mut code = Vec::new();
    file.read_to_end(&mut code)?;
    Ok(Some(Profile::new(&code, flags(seccomp)?).context("linux.seccomp")?))
}

fn translate(seccomp: &Value) -> anyhow::Result<ScmpFilterContext> {
    let default = action(&seccomp["defaultAction"], &seccomp["defaultErrnoRet"])?;
    let mut context = ScmpFilterContext::new(default)?;
    for name in strings(&seccomp["architectures"]) {
        let known = ScmpArch::from_str(name);
        context.add_arch(known.with_context(|| format!("architecture {name:?}"))?)?;
    }
    for rule in seccomp["syscalls"].as_array().into_iter().flatten() {
        let action = action(&rule["action"], &rule["errnoRet"])?;
        // The default action needs no rule, and libseccomp accepts none.
        if action == default {
            continue;
        }
        let conditions = rule["args"].as_array().into_iter().flatten();
        let conditions = conditions.map(condition).collect::<anyhow::Result<Vec<_>>>()?;
        for name in strings(&rule["names"]) {
            // This architecture has no call of that name; no program can make it.
            if let Ok(call) = ScmpSyscall::from_name(name) {
                add(&mut context, action, call, &conditions).with_context(|| name.to_string())?;
            }
        }
    }
    Ok(context)
}

/// Adds a rule. libseccomp allows one comparison of each argument in a rule. Further comparisons of an argument become rules of
/// their own, of which any one matches.
fn add(
    context: &mut ScmpFilterContext,
    action: ScmpAction,
    call: ScmpSyscall,
    conditions: &[(u64, ScmpArgCompare)],
) -> anyhow::Result<()> {
    let mut indices: Vec<u64> = conditions.iter().map(|(index, _)| *index).collect();
    indices.sort_unstable();
    indices.dedup();
    let all: Vec<ScmpArgCompare> = conditions.iter().map(|(_, compare)| *compare).collect();
    match all.as_slice() {
        [] => {
            context.add_rule(action, call)?;
        }
        all if indices.len() == all.len() => {
            context.add_rule_conditional(action, call, all)?;
        }
        all => {
            for one in all {
                context.add_rule_conditional(action, call, &[*one])?;
            }
        }
    }
    Ok(())
}

fn condition(arg: &Value) -> anyhow::Result<(u64, ScmpArgCompare)> {
    let number = |field: &str| arg[field].as_u64();
    let index = number("index").filter(|index| *index < 6).context("args: index from 0 to 5")?;
    let value = number("value").unwrap_or(0);
    let (compare, datum) = match arg["op"].as_str().unwrap_or_default() {
        "SCMP_CMP_NE" => (ScmpCompareOp::NotEqual, value),
        "SCMP_CMP_LT" => (ScmpCompareOp::Less, value),
        "SCMP_CMP_LE" => (ScmpCompareOp::LessOrEqual, value),
        "SCMP_CMP_EQ" => (ScmpCompareOp::Equal, value),
        "SCMP_CMP_GE" => (ScmpCompareOp::GreaterEqual, value),
        "SCMP_CMP_GT" => (ScmpCompareOp::Greater, value),
        "SCMP_CMP_MASKED_EQ" => {
            (ScmpCompareOp::MaskedEqual(value), number("valueTwo").unwrap_or(0))
        }
        other => bail!("args: op {other:?}: expected SCMP_CMP_EQ or another comparison"),
    };
    Ok((index, ScmpArgCompare::new(index as u32, compare, datum)))
}

fn action(name: &Value, errno: &Value) -> anyhow::Result<ScmpAction> {
    let errno = errno.as_i64().map_or(libc::EPERM, |errno| errno as i32);
    Ok(match name.as_str().unwrap_or_default() {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => ScmpAction::KillThread,
        "SCMP_ACT_KILL_PROCESS" => ScmpAction::KillProcess,
        "SCMP_ACT_TRAP" => ScmpAction::Trap,
        "SCMP_ACT_ERRNO" => ScmpAction::Errno(errno),
        "SCMP_ACT_TRACE" => ScmpAction::Trace(errno as u16),
        "SCMP_ACT_ALLOW" => ScmpAction::Allow,
        "SCMP_ACT_LOG" => ScmpAction::Log,
        "SCMP_ACT_NOTIFY" => bail!(
            "SCMP_ACT_NOTIFY: a process can have one listener, and the monitor of its clock needs it"
        ),
        other => bail!("action {other:?}: expected SCMP_ACT_ALLOW or another of seccomp's"),
    })
}

fn flags(seccomp: &Value) -> anyhow::Result<u64> {
    const LOG: u64 = 1 << 1;
    const SPEC_ALLOW: u64 = 1 << 2;
    let mut flags = 0;
    for flag in strings(&seccomp["flags"]) {
        flags |= match flag {
            "SECCOMP_FILTER_FLAG_LOG" => LOG,
            "SECCOMP_FILTER_FLAG_SPEC_ALLOW" => SPEC_ALLOW,
            // The process has one thread and no listener: the flags have no effect.
            "SECCOMP_FILTER_FLAG_TSYNC" | "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" => 0,
            other => bail!("linux.seccomp: flag {other:?} is not known"),
        };
    }
    Ok(flags)
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(seccomp: &Value) -> String {
        format!("{:#}", profile(seccomp).unwrap_err())
    }

    #[test]
    fn a_profile_becomes_a_program() {
        assert!(profile(&Value::Null).unwrap().is_none());
        let engine = json!({
            "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38,
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
            "flags": ["SECCOMP_FILTER_FLAG_LOG"],
            "syscalls": [
                {"names": ["read", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
                {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [
                    {"index": 0, "value": 8, "op": "SCMP_CMP_EQ"},
                    {"index": 0, "value": 0, "op": "SCMP_CMP_EQ"},
                ]},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [
                    {"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"},
                ]},
            ],
        });
        assert!(profile(&engine).unwrap().is_some());
    }

    #[test]
    fn a_profile_may_have_what_is_listed() {
        for action in ACTIONS {
            let action = json!(action);
            for operator in OPERATORS {
                let compare = json!({"index": 0, "value": 1, "op": operator});
                let rule = json!({"names": ["mkdir"], "action": action, "args": [compare]});
                let all = json!({
                    "defaultAction": "SCMP_ACT_KILL_PROCESS", "flags": FLAGS,
                    "architectures": architectures().unwrap(), "syscalls": [rule],
                });
                profile(&all).unwrap_or_else(|error| panic!("{all}: {error:#}"));
            }
        }
    }

    #[test]
    fn architectures_are_named_as_profiles_name_them() {
        let known = json!(architectures().unwrap());
        // Older than each libseccomp that there is for a kernel of ours.
        for name in ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_MIPSEL64N32"]
        {
            assert!(known.as_array().unwrap().contains(&json!(name)), "{known}");
        }
        let other_order = json!({
            "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_S390X"],
        });
        assert!(profile(&other_order).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |part: Value| {
            let mut all = json!({"defaultAction": "SCMP_ACT_ALLOW"});
            all.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            refusal(&all)
        };
        assert!(with(json!({"defaultAction": "NO"})).contains("action \"NO\""));
        assert!(with(json!({"architectures": ["VAX"]})).contains("architecture \"VAX\""));
        assert!(with(json!({"flags": ["X"]})).contains("flag \"X\""));
        let notify = json!({"syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}]});
        assert!(with(notify).contains("one listener"));
    }
}
