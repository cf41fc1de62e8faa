//! A container's control groups: the verb `update`, and the processes in the groups.

use std::fs;
use std::io::Read;

use anyhow::Context;
use libcgroups::common::{
    create_cgroup_manager, AnyCgroupManager, CgroupConfig, CgroupManager, ControllerOpt,
};
use libcontainer::container::Container as Tasks;
use libcontainer::oci_spec::runtime::LinuxResources;
use liboci_cli::Update;
use serde_json::{json, Value};

use crate::runtime_dir::RuntimeDir;

/// The control groups of a container.
pub fn manager(tasks: &Tasks) -> anyhow::Result<AnyCgroupManager> {
    Ok(create_cgroup_manager(CgroupConfig {
        cgroup_path: tasks.spec()?.cgroup_path,
        systemd_cgroup: tasks.systemd(),
        container_name: tasks.id().to_string(),
    })?)
}

/// Returns the container's processes, as this process's pid namespace numbers them.
pub fn pids(tasks: &Tasks) -> anyhow::Result<Vec<i32>> {
    let pids = manager(tasks)?.get_all_pids()?;
    Ok(pids.into_iter().map(|pid| pid.as_raw()).collect())
}

/// The verb `update`.
pub fn update(runtime_dir: &RuntimeDir, args: &Update) -> anyhow::Result<i32> {
    let tasks = runtime_dir.tasks(&args.container_id)?;
    let resources: LinuxResources = match &args.resources {
        Some(path) if path.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            serde_json::from_str(&text).context("--resources -")?
        }
        Some(path) => {
            let shown = path.display();
            let text = fs::read(path).with_context(|| format!("--resources {shown}"))?;
            serde_json::from_slice(&text).with_context(|| format!("--resources {shown}"))?
        }
        None => serde_json::from_value(ordered(args)).context("the limits given")?,
    };
    manager(&tasks)?.apply(&ControllerOpt {
        resources: &resources,
        freezer_state: None,
        oom_score_adj: None,
        disable_oom_killer: false,
    })?;
    Ok(0)
}

/// Converts the flags to the specification's `resources`.
fn ordered(args: &Update) -> Value {
    let mut all = json!({});
    let mut set = |part: &str, field: &str, value: Option<Value>| {
        if let Some(value) = value {
            all[part][field] = value;
        }
    };
    set("blockIO", "weight", args.blkio_weight.map(Into::into));
    set("cpu", "period", args.cpu_period.map(Into::into));
    set("cpu", "quota", args.cpu_quota.map(Into::into));
    set("cpu", "realtimePeriod", args.cpu_rt_period.map(Into::into));
    set("cpu", "realtimeRuntime", args.cpu_rt_runtime.map(Into::into));
    set("cpu", "shares", args.cpu_share.map(Into::into));
    set("cpu", "cpus", args.cpuset_cpus.clone().map(Into::into));
    set("cpu", "mems", args.cpuset_mems.clone().map(Into::into));
    set("memory", "limit", args.memory.map(Into::into));
    set("memory", "reservation", args.memory_reservation.map(Into::into));
    set("memory", "swap", args.memory_swap.map(Into::into));
    set("pids", "limit", args.pids_limit.map(Into::into));
    all
}
