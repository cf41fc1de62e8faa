//! The verbs `features`, which prints the runtime's capabilities, and `spec`, which writes a config.json to begin with.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{bail, Context};
use caps::Capability;
use libcontainer::oci_spec::runtime::{
    ApparmorBuilder, CgroupBuilder, Features, FeaturesBuilder, IDMapBuilder, IntelRdtBuilder,
    LinuxFeature, LinuxFeatureBuilder, LinuxNamespaceType, MemoryPolicyBuilder,
    MountExtensionsBuilder, NetDevicesBuilder, SeccompBuilder, SelinuxBuilder, Spec, VERSION,
};
use libseccomp::ScmpVersion;

use crate::annotations::PREFIX;
use crate::{copyup, sandbox};

/// The oldest version of the specification. libcontainer accepts each version 1.
const OLDEST_VERSION: &str = "1.0.0";
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
/// Mount options that libcontainer carries out, beside `tmpcopyup`, which is ours. libcontainer also accepts `remount`, `sync`, `dirsync`,
/// `mand`, `idmap` and the propagation of a mount, but it mounts by open_tree and fsmount without them.
const MOUNT_OPTIONS: [&str; 38] = [
    "async",
    "atime",
    "bind",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "ratime",
    "rbind",
    "rdev",
    "rdiratime",
    "relatime",
    "rexec",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnorelatime",
    "rnostrictatime",
    "rnosuid",
    "rnosymfollow",
    "ro",
    "rrelatime",
    "rro",
    "rrw",
    "rstrictatime",
    "rsuid",
    "rsymfollow",
    "rw",
    "strictatime",
    "suid",
];
const NAMESPACES: [LinuxNamespaceType; 8] = [
    LinuxNamespaceType::Cgroup,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Mount,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Time,
    LinuxNamespaceType::User,
    LinuxNamespaceType::Uts,
];
const MEMORY_POLICIES: [&str; 7] = [
    "MPOL_BIND",
    "MPOL_DEFAULT",
    "MPOL_INTERLEAVE",
    "MPOL_LOCAL",
    "MPOL_PREFERRED",
    "MPOL_PREFERRED_MANY",
    "MPOL_WEIGHTED_INTERLEAVE",
];
const MEMORY_POLICY_FLAGS: [&str; 3] =
    ["MPOL_F_NUMA_BALANCING", "MPOL_F_RELATIVE_NODES", "MPOL_F_STATIC_NODES"];

/// The verb `features`.
pub fn features() -> anyhow::Result<i32> {
    // A `Value` sorts the keys; the map of annotations has no order.
    let features = serde_json::to_value(supported()?)?;
    println!("{}", serde_json::to_string_pretty(&features)?);
    Ok(0)
}

fn supported() -> anyhow::Result<Features> {
    let mount_options = MOUNT_OPTIONS.into_iter().chain([copyup::OPTION]);
    let features = FeaturesBuilder::default()
        .oci_version_min(OLDEST_VERSION)
        .oci_version_max(VERSION)
        .hooks(HOOKS.map(String::from))
        .mount_options(mount_options.map(String::from).collect::<Vec<_>>())
        .linux(linux()?)
        .annotations(annotations()?)
        // An annotation can put a container onto the clock of another one.
        .potentially_unsafe_config_annotations([PREFIX.to_string()])
        .build()?;
    Ok(features)
}

fn linux() -> anyhow::Result<LinuxFeature> {
    let seccomp = SeccompBuilder::default()
        .enabled(true)
        .actions(sandbox::ACTIONS)
        .operators(sandbox::OPERATORS.map(String::from))
        .archs(sandbox::architectures()?)
        .known_flags(sandbox::FLAGS.map(String::from))
        // The oldest kernel that Lorentz runs on has them all.
        .supported_flags(sandbox::FLAGS.map(String::from))
        .build()?;
    let cgroup = CgroupBuilder::default()
        .v1(true)
        .v2(true)
        .systemd(true)
        .systemd_user(true)
        .rdma(false)
        .build()?;
    let intel_rdt =
        IntelRdtBuilder::default().enabled(true).schemata(true).monitoring(true).build()?;
    let memory_policy = MemoryPolicyBuilder::default()
        .modes(MEMORY_POLICIES.map(String::from))
        .flags(MEMORY_POLICY_FLAGS.map(String::from))
        .build()?;
    let idmap = IDMapBuilder::default().enabled(false).build()?;
    let features = LinuxFeatureBuilder::default()
        .namespaces(NAMESPACES)
        .capabilities(capabilities())
        .cgroup(cgroup)
        .seccomp(seccomp)
        .apparmor(ApparmorBuilder::default().enabled(true).build()?)
        .selinux(SelinuxBuilder::default().enabled(false).build()?)
        .intel_rdt(intel_rdt)
        .memory_policy(memory_policy)
        .mount_extensions(MountExtensionsBuilder::default().idmap(idmap).build()?)
        .net_devices(NetDevicesBuilder::default().enabled(true).build()?)
        .build()?;
    Ok(features)
}

/// Returns the names of all capabilities, in the kernel's order.
fn capabilities() -> Vec<String> {
    let mut all: Vec<Capability> = caps::all().into_iter().collect();
    all.sort_by_key(Capability::index);
    all.iter().map(ToString::to_string).collect()
}

fn annotations() -> anyhow::Result<HashMap<String, String>> {
    let libseccomp = ScmpVersion::current()?.to_string();
    let all = [
        ("io.lorentz.version", env!("CARGO_PKG_VERSION")),
        ("io.lorentz.annotations", PREFIX),
        ("io.github.seccomp.libseccomp.version", libseccomp.as_str()),
        // An engine looks for this before it calls `checkpoint`.
        ("org.opencontainers.runc.checkpoint.enabled", "true"),
    ];
    Ok(all.map(|(key, value)| (key.to_string(), value.to_string())).into())
}

/// The verb `spec`.
pub fn spec(args: &liboci_cli::Spec) -> anyhow::Result<i32> {
    let path = args.bundle.clone().unwrap_or_else(|| PathBuf::from(".")).join("config.json");
    if path.exists() {
        bail!("{}: is there already; expected a directory without one", path.display());
    }
    let spec = if args.rootless {
        Spec::rootless(nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())
    } else {
        Spec::default()
    };
    let text = serde_json::to_string_pretty(&spec)?;
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use libcontainer::syscall::linux::{MountOption, MountRecursive};
    use serde_json::{json, Value};

    use super::*;

    #[test]
    fn libcontainer_knows_each_mount_option() {
        for option in MOUNT_OPTIONS {
            let known = MountOption::from_str(option).is_ok();
            assert!(known || MountRecursive::from_str(option).is_ok(), "{option}");
        }
    }

    /// A new version of libcontainer may carry out more: then the list is out of date.
    #[test]
    fn no_mount_option_of_libcontainer_is_forgotten() {
        let without_effect = [
            "dirsync",
            "mand",
            "nomand",
            "private",
            "remount",
            "rprivate",
            "rshared",
            "rslave",
            "runbindable",
            "shared",
            "slave",
            "sync",
            "unbindable",
        ];
        for option in MountOption::known_options() {
            let option = option.as_str();
            let listed = MOUNT_OPTIONS.contains(&option);
            assert!(listed != without_effect.contains(&option), "{option}");
        }
    }

    #[test]
    fn each_memory_policy_is_one_of_the_specification() {
        for mode in MEMORY_POLICIES {
            let policy = json!({ "mode": mode, "nodes": "0", "flags": MEMORY_POLICY_FLAGS });
            let linux = json!({ "memoryPolicy": policy });
            let spec = json!({ "ociVersion": VERSION, "linux": linux });
            let read: Spec = serde_json::from_value(spec).unwrap();
            assert!(read.linux().as_ref().unwrap().memory_policy().is_some());
        }
    }

    /// The specification says of a missing field that it is unknown; here nothing is.
    #[test]
    fn no_field_is_left_out() {
        fn without_null(value: &Value) -> bool {
            match value {
                Value::Null => false,
                Value::Array(all) => all.iter().all(without_null),
                Value::Object(all) => all.values().all(without_null),
                _ => true,
            }
        }
        let features = serde_json::to_value(supported().unwrap()).unwrap();
        assert!(without_null(&features), "{features:#}");
    }
}
