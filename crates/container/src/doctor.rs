//! Abilities of this host for virtual time, found by trying; and the interfaces of time that are not virtual yet.
//!
//! ```
//! let features = lorentz_container::doctor::features();
//! let needed = features.iter().filter(|feature| feature.needed);
//! for missing in needed.filter(|feature| !feature.available) {
//!     println!("{}: {}; {}", missing.name, missing.detail, missing.how_to_get);
//! }
//! ```

mod limits;
mod probes;

use std::fs;

use crate::state::effective_user;

pub use limits::{Limit, LIMITS};

/// A feature that a host has or lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Its short name, which never changes.
    pub name: &'static str,
    /// Its purpose.
    pub purpose: &'static str,
    /// Whether nothing can run in virtual time without it.
    pub needed: bool,
    /// Whether the host has it.
    pub available: bool,
    /// The result of the probe.
    pub detail: String,
    /// Advice: how to get it if it is missing.
    pub how_to_get: &'static str,
}

/// Result of a probe: that the feature works, or why not, with the details in either case.
type Found = Result<String, String>;

/// A row of the list, without the result on this host.
struct Probe {
    name: &'static str,
    purpose: &'static str,
    needed: bool,
    how_to_get: &'static str,
    look: fn() -> Found,
}

const PROBES: &[Probe] = &[
    Probe {
        name: "architecture",
        purpose: "the shim's machine code",
        needed: true,
        how_to_get: "an x86-64 machine",
        look: architecture,
    },
    Probe {
        name: "kernel",
        purpose: "everything below at once",
        needed: false,
        how_to_get: "Linux 5.19 or later, 6.6 for the fastest exec",
        look: kernel,
    },
    Probe {
        name: "taps",
        purpose: "networks in virtual time: 'lorentz up'",
        needed: false,
        how_to_get: "root, a kernel with CONFIG_TUN, and /dev/net/tun",
        look: || tried(probes::taps(), "TAP devices in network namespaces of their own"),
    },
    Probe {
        name: "seccomp-filter",
        purpose: "calls that wait are caught",
        needed: true,
        how_to_get: "a kernel with CONFIG_SECCOMP_FILTER; in a container of another kind, a profile that allows seccomp",
        look: || tried(probes::seccomp_filter(), "a filter can be set"),
    },
    Probe {
        name: "seccomp-notify",
        purpose: "each exec inside is brought into virtual time",
        needed: true,
        how_to_get: "Linux 5.5 or later; not inside another sandbox that uses it (EBUSY)",
        look: || tried(probes::seccomp_listener(0), "a listener can be had"),
    },
    Probe {
        name: "seccomp-wait-killable",
        purpose: "signals do not disturb an exec that waits for the monitor",
        needed: true,
        how_to_get: "Linux 5.19 or later",
        look: || tried(probes::seccomp_listener(probes::WAIT_KILLABLE), "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"),
    },
    Probe {
        name: "seccomp-sync-wakeup",
        purpose: "a faster exec",
        needed: false,
        how_to_get: "Linux 6.6 or later",
        look: || tried(probes::seccomp_sync_wake_up(), "SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP"),
    },
    Probe {
        name: "ptrace",
        purpose: "the shim is put into a new program",
        needed: true,
        how_to_get: "sysctl kernel.yama.ptrace_scope at most 1 (2 with CAP_SYS_PTRACE); in a container of another kind, a profile that allows ptrace",
        look: || tried(probes::ptrace_child(), "a child can be traced").map(with_yama).map_err(with_yama),
    },
    Probe {
        name: "attach",
        purpose: "lorentz attach: processes that run already",
        needed: false,
        how_to_get: "root, or sysctl kernel.yama.ptrace_scope=0 for one's own processes",
        look: || tried(probes::ptrace_stranger(), "a process that is no child can be traced").map_err(with_yama),
    },
    Probe {
        name: "memfd-exec",
        purpose: "the shim's code is mapped from memory",
        needed: true,
        how_to_get: "sysctl vm.memfd_noexec=0 (or 1)",
        look: || tried(probes::memfd_exec(), "an executable memfd can be mapped"),
    },
    Probe {
        name: "low-address",
        purpose: "the shim lies at 0x70000000",
        needed: true,
        how_to_get: "sysctl vm.mmap_min_addr below 0x70000000; not from inside virtual time",
        look: || tried(probes::low_address(), "0x70000000 is free"),
    },
    Probe {
        name: "clocksource",
        purpose: "clock reads without a system call",
        needed: false,
        how_to_get: "a clock the vDSO can read (tsc, kvm-clock, hyperv): /sys/devices/system/clocksource/clocksource0",
        look: clocksource,
    },
    Probe {
        name: "time-namespace",
        purpose: "offsets of CLOCK_MONOTONIC and CLOCK_BOOTTIME at no cost",
        needed: false,
        how_to_get: "root, or user namespaces, on Linux 5.6 or later with CONFIG_TIME_NS",
        look: time_namespace,
    },
    Probe {
        name: "user-namespace",
        purpose: "namespaces without root",
        needed: false,
        how_to_get: "sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0",
        look: || tried(probes::unshare(libc::CLONE_NEWUSER), "one can be made"),
    },
    Probe {
        name: "cgroup-freeze",
        purpose: "lorentz freeze stops the tasks, not only their time",
        needed: false,
        how_to_get: "root, or a delegated control group (systemd-run --user --scope -p Delegate=yes), on a cgroup v2 mount",
        look: || probes::cgroup_freeze().map_err(str::to_string),
    },
    Probe {
        name: "idle-count",
        purpose: "the scheduler tells --skip-idle when all tasks sleep; else --skip-idle polls",
        needed: false,
        how_to_get: "root, or CAP_BPF and CAP_PERFMON, and a kernel with BTF (/sys/kernel/btf/vmlinux)",
        look: || lorentz_idle::check_switch_events().map(|()| "BPF programs on the scheduler's events can be loaded".into()),
    },
    Probe {
        name: "newcomers",
        purpose: "programs that enter a container from outside (nsenter) come onto its clock",
        needed: false,
        how_to_get: "root, or CAP_BPF and CAP_PERFMON, in the initial process id namespace, and a kernel with BTF (/sys/kernel/btf/vmlinux)",
        look: || lorentz_newcomers::check().map(|()| "a BPF program on the kernel's execs can be loaded".into()).map_err(|error| error.to_string()),
    },
    Probe {
        name: "criu",
        purpose: "lorentz checkpoint and lorentz restore",
        needed: false,
        how_to_get: crate::criu::HOW_TO_GET,
        look: || crate::criu::find().map(|criu| format!("{} ({})", criu.version, criu.path.display())),
    },
    Probe {
        name: "memory-tracking",
        purpose: "lorentz migrate --pre-copy",
        needed: false,
        how_to_get: "a kernel with CONFIG_MEM_SOFT_DIRTY, as Debian's",
        look: || crate::criu::check_memory_tracking().map(|()| "the kernel marks the memory that programs write".into()),
    },
    Probe {
        name: "epoll-pwait2",
        purpose: "waits of nanosecond precision",
        needed: false,
        how_to_get: "Linux 5.11 or later",
        look: || tried(probes::epoll_pwait2(), "there"),
    },
    Probe {
        name: "futex-lock-pi2",
        purpose: "priority-inheriting locks with a deadline on the monotonic clock",
        needed: false,
        how_to_get: "Linux 5.14 or later",
        look: || tried(probes::futex_lock_pi2(), "there"),
    },
    Probe {
        name: "tsc-trap",
        purpose: "--trap-tsc: rdtsc reads virtual time",
        needed: false,
        how_to_get: "an x86 kernel that has PR_SET_TSC",
        look: || tried(probes::tsc_trap(), "PR_SET_TSC"),
    },
    Probe {
        name: "root",
        purpose: "time namespaces, cgroup freeze, others' processes, setuid programs",
        needed: false,
        how_to_get: "sudo; without it setuid programs inside run with the caller's rights only",
        look: root,
    },
];

/// Runs all probes.
pub fn features() -> Vec<Feature> {
    let feature = |probe: &Probe| {
        let found = (probe.look)();
        Feature {
            name: probe.name,
            purpose: probe.purpose,
            needed: probe.needed,
            available: found.is_ok(),
            detail: found.unwrap_or_else(|why| why),
            how_to_get: probe.how_to_get,
        }
    };
    PROBES.iter().map(feature).collect()
}

/// Describes a probe's result.
fn tried(result: nix::Result<()>, works: &str) -> Found {
    match result {
        Ok(()) => Ok(works.to_string()),
        Err(errno) => Err(format!("{errno:?}: {}", errno.desc())),
    }
}

fn architecture() -> Found {
    let name = std::env::consts::ARCH.to_string();
    if cfg!(target_arch = "x86_64") {
        Ok(name)
    } else {
        Err(name)
    }
}

fn kernel() -> Found {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(|e| e.to_string())?;
    let release = release.trim().to_string();
    if is_recent(&release) {
        Ok(release)
    } else {
        Err(release)
    }
}

/// Whether a kernel release is 5.19 or later.
fn is_recent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next()) >= (5, 19)
}

fn with_yama(text: String) -> String {
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Ok(scope) => format!("{text} (yama ptrace_scope {})", scope.trim()),
        Err(_) => text,
    }
}

fn clocksource() -> Found {
    const READABLE: [&str; 3] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"];
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let name = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?.trim().to_string();
    if READABLE.contains(&name.as_str()) {
        Ok(name)
    } else {
        Err(format!("{name}: each clock read is a system call"))
    }
}

fn time_namespace() -> Found {
    if probes::unshare(probes::NEW_TIME).is_ok() {
        return Ok("one can be made".to_string());
    }
    let works = "one can be made within a user namespace";
    tried(probes::unshare(probes::NEW_TIME | libc::CLONE_NEWUSER), works)
}

fn root() -> Found {
    const WANTED: [(&str, u32); 2] = [("CAP_SYS_PTRACE", 19), ("CAP_SYS_ADMIN", 21)];
    let rights = effective_capabilities();
    let (has, lacks): (Vec<_>, Vec<_>) =
        WANTED.into_iter().partition(|(_, bit)| rights & (1 << bit) != 0);
    let names =
        |list: &[(&str, u32)]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let user = effective_user();
    match (user, lacks.is_empty()) {
        (0, true) => Ok(format!("user 0 with {}", names(&has))),
        (_, false) => Err(format!("user {user} without {}", names(&lacks))),
        (_, true) => Err(format!("user {user}, though with {}", names(&has))),
    }
}

fn effective_capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_says_what_was_found_and_how_to_get_it() {
        let features = features();
        for feature in &features {
            assert!(!feature.detail.is_empty(), "{}", feature.name);
            assert!(!feature.detail.contains('\n'), "{}", feature.name);
            assert!(!feature.how_to_get.is_empty(), "{}", feature.name);
        }
        let names: std::collections::BTreeSet<_> = features.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), features.len());
        for key in [
            "seccomp-notify",
            "ptrace",
            "time-namespace",
            "cgroup-freeze",
            "root",
            "attach",
            "memfd-exec",
            "user-namespace",
            "tsc-trap",
        ] {
            assert!(names.contains(key), "{key}");
        }
    }

    #[test]
    fn probing_twice_finds_the_same() {
        assert_eq!(features(), features());
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, recent) in [
            ("6.1.0-18-amd64", true),
            ("5.19", true),
            ("5.9.16", false),
            ("10.0", true),
            ("", false),
        ] {
            assert_eq!(is_recent(release), recent, "{release}");
        }
    }
}
