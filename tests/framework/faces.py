"""Every face of time of the kernel, and its state inside: one row each.

A row is virtual, or refused, or named in docs/limits.md, or has no time in it.
`tests/faces/test_all_faces.py` measures the rows and compares the tables with the kernel. It fails
for a system call, a clock or a file of /proc without a row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A face that shows the host's time inside: these words of docs/limits.md name it."""

    words: str


@dataclass(frozen=True)
class Refused:
    """A call that fails inside, with this error."""

    error: str


#: Measured by programs/faces/all_faces.py, or called by a program whose waits are judged.
VIRTUAL = "virtual"
#: No time goes in or comes out.
NONE = "none"


def rows(**kinds: str) -> dict[str, str]:
    return {name: kind for kind, names in kinds.items() for name in names.split()}


def limited(row: Limit, names: str) -> dict[str, Limit]:
    return dict.fromkeys(names.split(), row)


SYSCALLS: dict[str, str | Limit | Refused] = {
    **rows(
        virtual="""
        stat fstat lstat newfstatat statx utime utimes futimesat utimensat poll ppoll select
        pselect6 epoll_wait epoll_pwait epoll_pwait2 nanosleep clock_nanosleep getitimer
        setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete
        timerfd_create timerfd_settime timerfd_gettime gettimeofday settimeofday time
        clock_gettime clock_settime adjtimex clock_adjtime getrusage wait4 waitid times sysinfo
        futex futex_wait futex_waitv semtimedop mq_timedsend mq_timedreceive rt_sigtimedwait
        io_getevents io_pgetevents read open openat lseek pread64 setsockopt getsockopt connect
        accept accept4 sendto recvfrom sendmsg recvmsg recvmmsg readv write writev shmctl semctl
        msgctl execve execveat
        """,
        none="""
        close mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pwrite64 access
        pipe sched_yield mremap msync mincore madvise shmget shmat dup dup2 pause getpid socket
        shutdown bind listen getsockname getpeername socketpair clone fork vfork exit kill uname
        semget semop shmdt msgget msgsnd msgrcv fcntl flock fsync fdatasync truncate ftruncate
        getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod
        fchmod chown fchown lchown umask getuid getgid setuid setgid geteuid getegid setpgid
        getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid
        setresgid getresgid getpgid setfsuid setfsgid getsid capget capset rt_sigpending
        rt_sigqueueinfo rt_sigsuspend sigaltstack mknod uselib personality ustat statfs fstatfs
        sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler
        sched_getscheduler sched_get_priority_max sched_get_priority_min mlock munlock mlockall
        munlockall vhangup modify_ldt pivot_root _sysctl arch_prctl chroot sync mount umount2
        swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module
        delete_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall
        tuxcall security vserver gettid readahead setxattr lsetxattr fsetxattr getxattr
        lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
        fremovexattr tkill sched_setaffinity sched_getaffinity set_thread_area get_thread_area
        io_setup io_destroy io_submit io_cancel lookup_dcookie epoll_create epoll_ctl_old
        epoll_wait_old epoll_create1 epoll_ctl remap_file_pages getdents64 set_tid_address
        restart_syscall fadvise64 exit_group tgkill mbind set_mempolicy get_mempolicy mq_open
        mq_unlink mq_notify mq_getsetattr kexec_load ioprio_set ioprio_get inotify_init
        inotify_add_watch inotify_rm_watch migrate_pages mkdirat mknodat fchownat unlinkat
        renameat linkat symlinkat readlinkat fchmodat faccessat set_robust_list get_robust_list
        tee sync_file_range vmsplice move_pages signalfd eventfd fallocate signalfd4 eventfd2
        dup3 pipe2 inotify_init1 pwritev rt_tgsigqueueinfo fanotify_init fanotify_mark
        name_to_handle_at open_by_handle_at syncfs setns getcpu process_vm_readv
        process_vm_writev kcmp finit_module renameat2 seccomp getrandom memfd_create
        kexec_file_load userfaultfd membarrier mlock2 copy_file_range pwritev2 pkey_mprotect
        pkey_alloc pkey_free rseq pidfd_send_signal open_tree move_mount fsopen fsconfig fsmount
        fspick pidfd_open close_range pidfd_getfd faccessat2 process_madvise mount_setattr
        landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret
        process_mrelease set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake
        futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules
        mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr
        file_setattr uretprobe uprobe rseq_slice_yield listns
        """,
    ),
    "io_uring_setup": Refused("ENOSYS"),
    "clone3": Refused("ENOSYS"),
    "ptrace": Refused("EPERM"),
    # Without a ring these calls do nothing.
    "io_uring_enter": Refused("EBADF"),
    "io_uring_register": Refused("EINVAL"),
    "clock_getres": Limit("`clock_getres` is the kernel's, whatever the rate"),
    "ioctl": Limit("SIOCGSTAMP"),
    "openat2": Limit("`openat2`"),
    "preadv": Limit("`preadv`"),
    "preadv2": Limit("`preadv`"),
    "sendmmsg": Limit("(`sendmmsg`, `recvmmsg`, `sendfile`)"),
    "sendfile": Limit("(`sendmmsg`, `recvmmsg`, `sendfile`)"),
    "splice": Limit("`splice`"),
    "getrlimit": Limit("RLIMIT_CPU"),
    "setrlimit": Limit("RLIMIT_CPU"),
    "prlimit64": Limit("RLIMIT_CPU"),
    "sched_rr_get_interval": Limit("`sched_rr_get_interval`"),
    "sched_setattr": Limit("SCHED_DEADLINE"),
    "sched_getattr": Limit("SCHED_DEADLINE"),
    "prctl": Limit("timer slack"),
    "syslog": Limit("the kernel's log"),
    "acct": Limit("process accounting"),
    "quotactl": Limit("grace times of quotas"),
    "quotactl_fd": Limit("grace times of quotas"),
    "add_key": Limit("the expiry of keys"),
    "request_key": Limit("the expiry of keys"),
    "keyctl": Limit("the expiry of keys"),
    "unshare": Limit("`unshare --time`"),
    "perf_event_open": Limit("perf"),
    "bpf": Limit("BPF's clocks"),
}

#: By the names of linux/time.h.
CLOCKS: dict[str, str | Refused] = {
    **rows(
        virtual="""
        CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
        CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
        CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
        """
    ),
    "CLOCK_SGI_CYCLE": Refused("EINVAL"),
}

_COUNTS = Limit("/proc/interrupts")
_PRESSURE = Limit("/proc/pressure")
_NET = Limit("/proc/net")

#: Files, and whole folders, of /proc.
PROC: dict[str, str | Limit] = {
    **rows(
        virtual="uptime stat sysvipc",
        none="""
        acpi allocinfo asound buddyinfo bus cgroups cmdline config.gz consoles cpuinfo crypto
        devices device-tree dma driver dynamic_debug execdomains fb filesystems fs iomem ioports
        irq kallsyms kcore key-users kpagecgroup kpagecount kpageflags locks mdstat meminfo misc
        modules mounts mtrr net pagetypeinfo partitions scsi self slabinfo swaps sysrq-trigger
        thread-self tty version version_signature vmallocinfo vmcore vmstat xen zoneinfo
        """,
    ),
    "driver/rtc": Limit("/dev/rtc"),
    "interrupts": _COUNTS,
    "softirqs": _COUNTS,
    "diskstats": Limit("/proc/diskstats"),
    "kmsg": Limit("the kernel's log"),
    "keys": Limit("the expiry of keys"),
    "latency_stats": Limit("/proc/latency_stats"),
    "loadavg": Limit("/proc/loadavg"),
    "pressure": _PRESSURE,
    "sched_debug": Limit("/proc/sched_debug"),
    "schedstat": Limit("/proc/schedstat"),
    "sys": Limit("/proc/sys"),
    "timer_list": Limit("/proc/timer_list"),
    "timer_stats": Limit("/proc/timer_list"),
}

#: Files of /proc/PID.
PROC_PID: dict[str, str | Limit] = {
    **rows(
        virtual="stat schedstat",
        none="""
        arch_status attr auxv cgroup clear_refs cmdline comm coredump_filter cpu_resctrl_groups
        cpuset cwd environ exe fail-nth fd gid_map io ksm_merging_pages ksm_stat limits loginuid
        make-it-fail map_files maps mem mountinfo mounts net ns numa_maps oom_adj oom_score
        oom_score_adj pagemap patch_state personality projid_map root seccomp_cache sessionid
        setgroups smaps smaps_rollup stack statm status syscall task uid_map wchan
        x86_task_features
        """,
    ),
    "autogroup": NONE,
    "fdinfo": Limit("the fdinfo of timer descriptors"),
    "latency": Limit("/proc/latency_stats"),
    "mountstats": Limit("/proc/PID/mountstats"),
    "sched": Limit("/proc/PID/sched"),
    "timens_offsets": Limit("`unshare --time`"),
    "timers": Limit("/proc/PID/timers"),
    "timerslack_ns": Limit("timer slack"),
}

#: Files of /proc/net. Tables with a time in a column are named; counters are no time.
PROC_NET: dict[str, str | Limit] = {
    **rows(
        none="""
        anycast6 arp arp_tables_matches arp_tables_names arp_tables_targets bonding connector
        dev dev_mcast dev_snmp6 fib_trie fib_triestat hci icmp icmp6 if_inet6 igmp6
        ip6_flowlabel ip6_mr_cache ip6_mr_vif ip6_tables_matches ip6_tables_names
        ip6_tables_targets ip_mr_vif ip_tables_matches ip_tables_names ip_tables_targets
        ipconfig ipv6_route kcm mcfilter mcfilter6 netfilter netlink netstat packet pnp
        protocols psched ptype raw raw6 route rpc rt6_stats rt_acct rt_cache rxrpc sctp snmp
        snmp6 sockstat sockstat6 softnet_stat stat unix vlan wireless xfrm_stat xt_qtaguid
        """,
    ),
    **limited(
        _NET,
        """
        igmp ip6t_hashlimit ip_mr_cache ip_vs ip_vs_app ip_vs_conn ip_vs_conn_sync ip_vs_stats
        ip_vs_stats_percpu ipt_hashlimit nf_conntrack nf_conntrack_expect tcp tcp6 tls_stat udp
        udp6 udplite udplite6 xt_recent
        """,
    ),
}

#: Options of sockets, ioctls, netlink, devices, other files: by name. Those that the program
#: programs/faces/all_faces.py can read are measured under this name.
OTHERS: dict[str, str | Limit] = {
    **rows(
        virtual="""
        SO_RCVTIMEO SO_SNDTIMEO SO_TIMESTAMP SO_TIMESTAMPNS SO_TIMESTAMPING cpu_columns btime
        start_of_a_process schedstat sysvipc_shm sysvipc_msg sysvipc_sem
        """
    ),
    **limited(
        Limit("**TCP's own timers**"),
        "TCP_KEEPIDLE TCP_KEEPINTVL TCP_LINGER2 TCP_RTO_MIN_US TCP_RTO_MAX_MS TCP_DELACK_MAX_US",
    ),
    "TCP_INFO": Limit("TCP_INFO"),
    "TCP_USER_TIMEOUT": Limit("TCP_USER_TIMEOUT"),
    "TCP_DEFER_ACCEPT": Limit("TCP_DEFER_ACCEPT"),
    "SO_LINGER": Limit("SO_LINGER"),
    "SO_TXTIME": Limit("SO_TXTIME"),
    "SO_BUSY_POLL": Limit("SO_BUSY_POLL"),
    "SO_MAX_PACING_RATE": Limit("SO_MAX_PACING_RATE"),
    "SIOCGSTAMP": Limit("SIOCGSTAMP"),
    "PACKET_MMAP": Limit("PACKET_MMAP"),
    "RTC_RD_TIME": Limit("/dev/rtc"),
    "PTP_SYS_OFFSET": Limit("dynamic PTP clocks"),
    "PPS_FETCH": Limit("PPS"),
    "EVIOCSCLOCKID": Limit("input events"),
    "SNDRV_PCM_IOCTL_STATUS": Limit("sound"),
    "VIDIOC_DQBUF": Limit("video"),
    "USBDEVFS_BULK": Limit("USB"),
    "WDIOC_GETTIMELEFT": Limit("watchdogs"),
    "VTIME": Limit("VTIME of terminals"),
    "NDA_CACHEINFO": Limit("ages of neighbours"),
    "RTA_CACHEINFO": Limit("ages of routes"),
    "IFA_CACHEINFO": Limit("lifetimes of addresses"),
    "CTA_TIMEOUT": Limit("conntrack"),
    "TASKSTATS": Limit("taskstats"),
    "cgroup_cpu_stat": Limit("cpu.stat"),
    "cgroup_pressure": Limit("cpu.pressure"),
    "cgroup_cpuacct": Limit("cpuacct"),
    "cgroup_freezer": Limit("cgroup.freeze"),
    "sys_class_rtc": Limit("/sys/class/rtc"),
    "sys_runtime_pm": Limit("runtime_active_time"),
    "sys_cpuidle": Limit("cpuidle"),
    "sys_block_stat": Limit("/sys/block/*/stat"),
    "sys_thermal": Limit("time_in_state"),
    "timer_list": Limit("/proc/timer_list"),
    "sched": Limit("/proc/PID/sched"),
    "fdinfo": Limit("the fdinfo of timer descriptors"),
    "vdso_of_the_kernel": Limit("/proc/self/auxv tells the kernel's vDSO"),
    "rdtsc": Limit("**rdtsc and rdtscp**"),
    "utmp": Limit("utmp and wtmp"),
    "audit": Limit("audit"),
    "tracefs": Limit("tracefs"),
    "guest": Limit("**A virtual machine started inside**"),
}
