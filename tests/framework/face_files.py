"""Files of /proc and /sys, as `faces` has the system calls: one row each.

A key is a path, or a pattern of paths in which `*` stands for any text. Numbers of processes,
threads and interrupts are `N`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from framework.faces import NONE, READ, Limit, Row, rows

_COUNTS = Limit("/proc/interrupts")
_CGROUP = Limit("A control group counts CPU time in real seconds")
_DELAYS = Limit("delays, intervals and timeouts that are set there")


def row_of(path: str, table: dict[str, Row]) -> Row | None:
    """The row of a path: its own, or that of the first pattern that fits."""
    if path in table:
        return table[path]
    return next((row for pattern, row in table.items() if fnmatchcase(path, pattern)), None)


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
    "diskstats": Limit("/proc/diskstats"),
    "kmsg": Limit("the kernel's log"),
    "keys": Limit("the expiry of keys"),
    "latency_stats": Limit("/proc/latency_stats"),
    "loadavg": Limit("/proc/loadavg"),
    "mdstat": Limit("/proc/mdstat"),
    "pressure": Limit("/proc/pressure"),
    "sched_debug": Limit("/proc/sched_debug"),
    "schedstat": Limit("/proc/schedstat"),
    "sys": Limit("/proc/sys"),
    "timer_list": Limit("/proc/timer_list"),
    "timer_stats": Limit("/proc/timer_list"),
}

#: Files below the folders of /proc, but for those of processes, /proc/net and /proc/sys.
PROC_DEEPER: dict[str, Row] = {
    **rows(READ, "sysvipc/*"),
    "irq/N/spurious": Limit("/proc/irq/N/spurious"),
    "driver/rtc": Limit("/dev/rtc"),
    "fs/jbd2/*/info": Limit("/proc/fs/jbd2"),
    "fs/ext4/*/fc_info": Limit("/proc/fs/ext4"),
    "fs/ext4/*/es_shrinker_info": Limit("/proc/fs/ext4"),
    "fs/ext4/*/mb_stats": Limit("/proc/fs/ext4"),
    "fs/nfsfs/servers": NONE,
    "fs/nfsfs/volumes": NONE,
    "fs/xfs/*": NONE,
    "fs/f2fs/*": Limit("/proc/fs/f2fs"),
    "fs/cifs/*": Limit("/proc/fs/cifs"),
    "fs/fscache/*": NONE,
    "fs/lockd/*": NONE,
    "fs/nfsd/*": NONE,
    "fs/nfs/*": NONE,
    "asound/*/pcm*/sub*/status": Limit("sound"),
    "asound/*": NONE,
    "pressure/*": Limit("/proc/pressure"),
    "scsi/sg/*": Limit("the timeouts of drivers"),
    "scsi/*": NONE,
    **rows(
        NONE,
        """
        fs/ext4/*/mb_groups fs/ext4/*/mb_structs_summary fs/ext4/*/options irq/default_smp_affinity
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
    "latency": Limit("/proc/latency_stats"),
    "mountstats": Limit("/proc/PID/mountstats"),
    "sched": Limit("/proc/PID/sched"),
    "timens_offsets": Limit("`unshare --time`"),
    "timers": Limit("/proc/PID/timers"),
    "timerslack_ns": Limit("timer slack"),
}

#: Files of /proc/net. Tables with a time in a column are named; counters are no time.
PROC_NET: dict[str, Row] = {
    **rows(
        NONE,
        """
        anycast6 arp arp_tables_matches arp_tables_names arp_tables_targets connector
        dev dev_mcast dev_snmp6/* fib_trie fib_triestat hci icmp icmp6 if_inet6 igmp6
        ip6_flowlabel ip6_mr_cache ip6_mr_vif ip6_tables_matches ip6_tables_names
        ip6_tables_targets ip_mr_vif ip_tables_matches ip_tables_names ip_tables_targets
        ipconfig/* ipv6_route kcm mcfilter mcfilter6 netfilter/* netlink netstat packet pnp
        protocols psched ptype raw raw6 route rpc/* rt6_stats rt_acct rt_cache sctp/* snmp
        snmp6 sockstat sockstat6 softnet_stat stat/* unix vlan/* wireless xfrm_stat xt_qtaguid
        """,
    ),
    **rows(
        Limit("/proc/net"),
        """
        bonding/* igmp ip6t_hashlimit/* ip_mr_cache ip_vs ip_vs_app ip_vs_conn ip_vs_conn_sync
        ip_vs_stats ip_vs_stats_percpu ipt_hashlimit/* nf_conntrack nf_conntrack_expect pktgen/*
        rxrpc/* tcp tcp6 tls_stat udp udp6 udplite udplite6 xt_recent/*
        """,
    ),
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
        /sys/module/nf_conntrack/parameters/tstamp /sys/kernel/uevent_seqnum */fast_io_fail_tmo
        /sys/fs/ext4/*/delayed_allocation_blocks /sys/devices/msr/events/tsc */zram*/idle
        """,
    ),
    **rows(
        Limit("runtime_active_time"),
        """
        */power/runtime_*_time */power/wakeup_*_ms */power/wakeup_*_count */wakeup*/*_ms
        */power/*_residency* */suspend_stats/*
        """,
    ),
    **rows(Limit("cpuidle"), "*/cpuidle/state*/* */low_power_idle_*_residency_us"),
    **rows(Limit("time_in_state"), "*/stats/* */time_in_state* */cooling_device*/stats/*"),
    **rows(Limit("/sys/class/rtc"), "*/rtc/rtc*/*"),
    **rows(Limit("first_error_time"), "*/first_error_time */last_error_time"),
    **rows(Limit("dynamic PTP clocks"), "*/ptp/ptp*/*"),
    **rows(Limit("PPS"), "*/pps/pps*/*"),
    **rows(Limit("watchdogs"), "*/watchdog/watchdog*/*"),
    **rows(Limit("tracefs"), "/sys/kernel/tracing/*"),
    **rows(_CGROUP, "/sys/fs/cgroup/*"),
    **rows(
        _DELAYS,
        """
        */power/autosuspend_delay_ms */power/pm_qos_*_us /sys/module/*/parameters/*
        /sys/power/pm_freeze_timeout /sys/kernel/mm/* /sys/class/firmware/timeout
        */perf_event_mux_interval_ms */events_poll_msecs */queue/* */tty/*/close_delay
        */tty/*/closing_wait */gro_flush_timeout */irq_suspend_timeout */hold_time */tx_timeout
        /sys/fs/ext4/*/*_ms /sys/fs/ext4/*/sb_update_sec */bridge/* */brport/* */bonding/*
        */cpufreq/* */msi_irqs/* */napi_defer_hard_irqs */thermal/*
        /sys/bus/workqueue/* */eh_deadline */timeout */dev_loss_tmo */retry_timeout
        """,
    ),
}
