"""Files of /proc and /sys, as `faces` has the system calls: one row each.

A key is a path, or a pattern of paths in which `*` stands for any text. Numbers of processes,
threads and interrupts are `N`.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from framework.faces import NONE, READ, TIME_NAMESPACES, Limit, Row, kept, rows

_COUNTS = Limit("/proc/interrupts")
_SLEEP = "suspension of the machine (CONFIG_PM_SLEEP) and a device that wakes it"
_CGROUP = Limit("A control group counts CPU time in real seconds")
_DELAYS = Limit(
    "delays, intervals and timeouts that are set there",
    needs="a device with such a file, and a value other than 0",
)


def delays(needs: str, names: str) -> dict[str, Row]:
    return rows(replace(_DELAYS, needs=needs), names)


def pattern_of(path: str, table: dict[str, Row]) -> str | None:
    """The key of a path's row: the path itself, or the first pattern that fits."""
    if path in table:
        return path
    return next((pattern for pattern in table if fnmatchcase(path, pattern)), None)


def row_of(path: str, table: dict[str, Row]) -> Row | None:
    pattern = pattern_of(path, table)
    return None if pattern is None else table[pattern]


#: Files and folders of /proc.
PROC: dict[str, Row] = {
    **rows(READ, "uptime stat sysvipc"),
    **rows(
        NONE,
        """
        acpi allocinfo asound buddyinfo bus cgroups cmdline config.gz consoles cpuinfo crypto
        devices device-tree dma driver dynamic_debug execdomains fb filesystems fs iomem ioports
        irq kallsyms kcore key-users kpagecgroup kpagecount kpageflags locks meminfo misc
        modules mounts mtrr net pagetypeinfo partitions scsi self slabinfo swaps sysrq-trigger
        thread-self tty version version_signature vmallocinfo vmcore vmstat xen zoneinfo
        """,
    ),
    **rows(_COUNTS, "interrupts softirqs"),
    "diskstats": Limit("/proc/diskstats", needs="a disk that was read"),
    "kmsg": Limit("the kernel's log"),
    "keys": Limit("the expiry of keys"),
    "latency_stats": Limit("/proc/latency_stats", needs="CONFIG_LATENCYTOP"),
    "loadavg": Limit("/proc/loadavg"),
    "mdstat": Limit("/proc/mdstat", needs="CONFIG_MD and an array that is being rebuilt"),
    "pressure": Limit("/proc/pressure", needs="CONFIG_PSI, and psi=1 where it is off by default"),
    "sched_debug": Limit("/proc/sched_debug", needs="a kernel before 5.13"),
    "schedstat": Limit("/proc/schedstat", needs="CONFIG_SCHEDSTATS"),
    "sys": Limit("/proc/sys"),
    "timer_list": Limit("/proc/timer_list"),
    "timer_stats": Limit("/proc/timer_list", needs="a kernel before 4.11"),
}

#: Files below the folders of /proc, but for those of processes, /proc/net and /proc/sys.
PROC_DEEPER: dict[str, Row] = {
    **rows(READ, "sysvipc/*"),
    "irq/N/spurious": Limit("/proc/irq/N/spurious", needs="an interrupt that no driver handled"),
    "driver/rtc": Limit("/dev/rtc", needs="CONFIG_RTC_CLASS and a real-time clock"),
    "fs/jbd2/*/info": Limit("/proc/fs/jbd2", needs="ext4 as root"),
    "fs/ext4/*/fc_info": Limit("/proc/fs/ext4", needs="ext4 as root"),
    "fs/ext4/*/es_shrinker_info": Limit(
        "/proc/fs/ext4", needs="a file system whose cache the kernel has shrunk for want of memory"
    ),
    "fs/ext4/*/mb_stats": Limit("/proc/fs/ext4", needs="ext4 as root"),
    "fs/ext4/*/options": Limit("/proc/fs/ext4", needs="ext4 as root"),
    "fs/nfsfs/servers": NONE,
    "fs/nfsfs/volumes": NONE,
    "fs/xfs/*": NONE,
    "fs/f2fs/*": Limit("/proc/fs/f2fs", needs="CONFIG_F2FS_FS and a file system of it"),
    "fs/cifs/*": Limit("/proc/fs/cifs", needs="CONFIG_CIFS and a file system of it"),
    "fs/fscache/*": NONE,
    "fs/lockd/*": NONE,
    "fs/nfsd/*": NONE,
    "fs/nfs/*": NONE,
    "asound/*/pcm*/sub*/status": Limit("sound", needs="CONFIG_SND and a sound card that plays"),
    "asound/*": NONE,
    "pressure/*": Limit("/proc/pressure", needs="CONFIG_PSI, and psi=1 where it is off by default"),
    "scsi/sg/*": Limit("the timeouts of drivers", needs="CONFIG_CHR_DEV_SG and a SCSI device"),
    "scsi/*": NONE,
    **rows(
        NONE,
        """
        fs/ext4/*/mb_groups fs/ext4/*/mb_structs_summary irq/default_smp_affinity
        irq/N/affinity_hint irq/N/effective_affinity irq/N/effective_affinity_list irq/N/node
        irq/N/smp_affinity irq/N/smp_affinity_list acpi/* bus/input/* bus/pci/* driver/nvram
        driver/snd-page-alloc dynamic_debug/control tty/driver/* tty/drivers tty/ldiscs xen/*
        device-tree/*
        """,
    ),
}

#: Files of /proc/PID and /proc/PID/task/TID.
PROC_PID: dict[str, Row] = {
    **rows(READ, "stat schedstat"),
    **rows(
        NONE,
        """
        arch_status attr autogroup auxv cgroup children clear_refs cmdline comm coredump_filter
        cpu_resctrl_groups cpuset cwd environ exe fail-nth fd gid_map io ksm_merging_pages ksm_stat
        limits loginuid make-it-fail map_files maps mem mountinfo mounts net ns numa_maps oom_adj
        oom_score oom_score_adj pagemap patch_state personality projid_map root seccomp_cache
        sessionid setgroups smaps smaps_rollup stack statm status syscall task uid_map wchan
        x86_task_features
        """,
    ),
    "fdinfo": Limit("the fdinfo of timer descriptors"),
    "latency": Limit("/proc/latency_stats", needs="CONFIG_LATENCYTOP"),
    "mountstats": Limit("/proc/PID/mountstats", needs="CONFIG_NFS_FS and a mount of NFS"),
    "sched": Limit("/proc/PID/sched"),
    "timens_offsets": Limit("`unshare --time`", TIME_NAMESPACES),
    "timers": kept("/proc/PID/timers", "/proc/PID/timers"),
    "timerslack_ns": Limit("timer slack"),
}

#: Files of /proc/net. Tables with a time in a column are named; counters are no time.
PROC_NET: dict[str, Row] = {
    **rows(
        NONE,
        """
        anycast6 arp arp_tables_matches arp_tables_names arp_tables_targets connector
        dev dev_mcast dev_snmp6/* fib_trie fib_triestat hci icmp icmp6 if_inet6
        ip6_mr_cache ip6_mr_vif ip6_tables_matches ip6_tables_names ip6_tables_targets ip_mr_cache
        ip_mr_vif ip_tables_matches ip_tables_names ip_tables_targets ip_vs_app
        ipconfig/* ipv6_route kcm mcfilter mcfilter6 netfilter/* netlink netstat packet pnp
        protocols psched ptype raw raw6 route rt6_stats rt_acct rt_cache snmp
        snmp6 sockstat sockstat6 softnet_stat stat/* tls_stat unix vlan/* wireless xfrm_stat
        xt_qtaguid
        """,
    ),
    # Their columns `tm->when` and `timeout` are always 0.
    **rows(NONE, "udp udp6 udplite udplite6"),
    **rows(Limit("/proc/net"), "tcp"),
    **rows(Limit("/proc/net", needs="CONFIG_IPV6"), "tcp6 igmp6 ip6_flowlabel"),
    **rows(Limit("/proc/net", needs="CONFIG_IP_MULTICAST"), "igmp"),
    **rows(
        Limit("/proc/net", needs="CONFIG_NETFILTER_XT_MATCH_HASHLIMIT, and iptables"),
        "ipt_hashlimit/* ip6t_hashlimit/*",
    ),
    **rows(
        Limit("/proc/net", needs="CONFIG_NETFILTER_XT_MATCH_RECENT, and iptables"), "xt_recent/*"
    ),
    **rows(
        Limit("/proc/net", needs="CONFIG_NF_CONNTRACK_PROCFS, CONFIG_NF_CONNTRACK_FTP, and nft"),
        "nf_conntrack nf_conntrack_expect",
    ),
    **rows(Limit("/proc/net", needs="CONFIG_BONDING and a bond"), "bonding/*"),
    **rows(
        Limit("/proc/net", needs="CONFIG_IP_VS"),
        "ip_vs ip_vs_conn ip_vs_conn_sync ip_vs_stats ip_vs_stats_percpu",
    ),
    **rows(Limit("/proc/net", needs="CONFIG_NET_PKTGEN"), "pktgen/*"),
    **rows(Limit("/proc/net", needs="CONFIG_AF_RXRPC"), "rxrpc/*"),
    **rows(Limit("/proc/net", needs="CONFIG_IP_SCTP"), "sctp/*"),
    **rows(Limit("/proc/net", needs="CONFIG_SUNRPC and its caches"), "rpc/*"),
}

#: Files of /sys whose names speak of time (`speaks_of_time`), by a pattern of their whole path.
SYS: dict[str, Row] = {
    **rows(
        NONE,
        """
        */clocksource/clocksource*/* /sys/kernel/slab/*/validate /sys/kernel/debug/*
        */power/runtime_status */cpuidle/state*/desc /sys/power/wakeup_count */wakeup_type
        /sys/kernel/irq/*/wakeup */power/wakeup */console_suspend */ec_no_wakeup
        */last_error_block */last_error_errcode */last_error_func */last_error_ino
        */last_error_line */last_trim_minblks /sys/fs/ext4/*/lifetime_write_kbytes
        */kvmclock_periodic_sync */pvclock/parameters/*
        /sys/module/nf_conntrack/parameters/tstamp /sys/kernel/uevent_seqnum */msi_irqs/*
        /sys/fs/ext4/*/delayed_allocation_blocks /sys/devices/msr/events/tsc */zram*/idle
        /sys/kernel/mm/transparent_hugepage/*/stats/*
        """,
    ),
    **rows(Limit("runtime_active_time"), "*/power/runtime_*_time"),
    **rows(
        Limit("runtime_active_time", needs=_SLEEP),
        "*/power/wakeup_*_ms */power/wakeup_*_count */wakeup*/*_ms */suspend_stats/*",
    ),
    **rows(
        Limit("runtime_active_time", needs="a device that tells its states of low power"),
        "*/power/*_residency*",
    ),
    **rows(
        Limit("cpuidle", needs="a processor whose idle states the kernel chooses"),
        "*/cpuidle/state*/* */low_power_idle_*_residency_us",
    ),
    **rows(
        Limit("time_in_state", needs="a processor whose frequency the kernel chooses"),
        "*/cpufreq/stats/* */time_in_state*",
    ),
    **rows(
        Limit("time_in_state", needs="a cooling device (CONFIG_THERMAL_STATISTICS)"),
        "*/cooling_device*/stats/*",
    ),
    **rows(Limit("/sys/class/rtc"), "*/rtc/rtc*/*"),
    **rows(Limit("first_error_time", needs="ext4 as root"), "*/first_error_time */last_error_time"),
    **rows(Limit("dynamic PTP clocks", needs="a network card with a clock"), "*/ptp/ptp*/*"),
    **rows(Limit("PPS", needs="a source of pulses"), "*/pps/pps*/*"),
    **rows(Limit("watchdogs", needs="a watchdog"), "*/watchdog/watchdog*/*"),
    **rows(Limit("tracefs"), "/sys/kernel/tracing/*"),
    **rows(_CGROUP, "/sys/fs/cgroup/*"),
    **rows(
        _DELAYS,
        """
        */power/autosuspend_delay_ms /sys/module/*/parameters/*
        /sys/power/pm_freeze_timeout /sys/kernel/mm/* /sys/class/firmware/timeout
        */perf_event_mux_interval_ms */events_poll_msecs */queue/* */tty/*/close_delay
        */gro_flush_timeout */hold_time /sys/fs/ext4/*/*_ms /sys/fs/ext4/*/sb_update_sec
        */bridge/* */brport/* */napi_defer_hard_irqs
        """,
    ),
    **delays("a device to which a program has given a latency", "*/power/pm_qos_*_us"),
    **delays("a serial line of another driver than 8250", "*/tty/*/closing_wait"),
    **delays("Linux 6.12 or later, and a setting", "*/irq_suspend_timeout"),
    **delays("a network device that has stopped sending", "*/tx_timeout"),
    **delays("CONFIG_BONDING and a bond", "*/bonding/*"),
    **delays("a processor whose frequency the kernel chooses", "*/cpufreq/*"),
    **delays("a thermal zone", "*/thermal/*"),
    **delays("work queues with such a file", "/sys/bus/workqueue/*"),
    **delays("CONFIG_SCSI", "*/eh_deadline */dev_loss_tmo */fast_io_fail_tmo"),
    **delays("a device with such a file", "*/timeout */retry_timeout"),
}

#: Files of /sys that show time, whatever their names.
SYS_OTHERS: dict[str, Row] = {
    "/sys/block/*/stat": Limit("/sys/block/*/stat", needs="a disk"),
    "/sys/fs/cgroup/unified/*/*.pressure": Limit("cpu.pressure", needs="CONFIG_PSI, cgroup v1"),
    "/sys/fs/cgroup/*/*.pressure": Limit("cpu.pressure", needs="CONFIG_PSI, cgroup v2"),
}
