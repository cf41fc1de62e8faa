"""Every face of time of the kernel, and its state inside: one row each.

A row is virtual, or refused, or named in docs/limits.md, or has no time in it. Here are the system
calls, the clocks and what belongs to no list of the kernel's; `face_files` has the files of /proc
and /sys, `face_options` the options of sockets and the ioctls.

`tests/faces/test_all_faces.py` measures the rows. `tests/faces/test_face_tables.py` compares the
tables with the kernel, and fails for a face without a row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Virtual:
    """A face that shows virtual time. `judge` is the test that measures it, as pytest names it
    below tests/. Without one, programs/faces/all_faces.py reads the face."""

    judge: str | None = None


@dataclass(frozen=True)
class Limit:
    """A face that shows the host's time inside: these words of docs/limits.md name it. `judge` is
    the test that measures it, if another does than those of `all_faces`. `needs` is the hardware
    or the kernel's option without which a machine does not have the face."""

    words: str
    judge: str | None = None
    needs: str = ""


@dataclass(frozen=True)
class SetOnce:
    """A timeout by the rate that was in force when the program set it: no later change of the rate
    reaches it, as these words of docs/limits.md say."""

    words: str


@dataclass(frozen=True)
class Refused:
    """A call that fails inside, with this error."""

    error: str


#: Read by programs/faces/all_faces.py.
READ = Virtual()
#: No time goes in or comes out.
NONE = "none"
Row = str | Virtual | Limit | SetOnce | Refused


def rows(row: Row, names: str) -> dict[str, Row]:
    """The same row for many faces."""
    return dict.fromkeys(names.split(), row)


def judged(test: str, **cases: str) -> dict[str, Row]:
    """Virtual faces, each with the case by which a test measures it: `{}` in the test's name."""
    return {name: Virtual(test.format(case)) for name, case in cases.items()}


def kept(words: str, name: str) -> Limit:
    """A number that the kernel keeps for a descriptor or a process."""
    test = "faces/test_real_values.py::test_a_number_that_the_kernel_keeps_is_the_hosts[{}]"
    return Limit(words, test.format(name))


_WAITS = "waits/test_waits.py::test_a_wait_is_the_kernels_but_for_the_rate[{}-dynamic-10]"
_TIMERS = "timers/test_timers.py::test_a_timer_is_the_kernels_but_for_the_rate[{}-dynamic-10]"
_FILE_TIMES = Virtual("faces/test_file_times.py::test_times_set_by_hand_read_back_the_same[None]")
_SETTING = Virtual(
    "pitfalls/test_pitfalls.py::TestSettingTheClock::"
    "test_a_program_that_may_set_clocks_sets_its_containers"
)
_STARTING = "process_tree/test_starting.py::test_a_program_started_inside_is_inside[{}-dynamic]"
TIME_NAMESPACES = (
    "faces/test_time_namespaces.py::test_every_clock_is_ahead_by_the_offset_of_its_namespace[10]"
)
STAMPS = "faces/test_sockets.py::test_a_receive_stamp_is_in_virtual_time[{}-10-2038-01-19]"
TIMEOUTS = "faces/test_sockets.py::test_a_socket_timeout_reads_back_as_it_was_set[{}-10]"

SYSCALLS: dict[str, Row] = {
    **rows(
        READ,
        """
        stat fstat lstat newfstatat statx getitimer timer_gettime timerfd_gettime gettimeofday time
        clock_gettime adjtimex clock_adjtime getrusage waitid times sysinfo lseek pread64 shmctl
        semctl msgctl open openat read readv write writev recvfrom recvmsg sendto sendmsg connect
        accept accept4
        """,
    ),
    **judged(
        _WAITS,
        poll="poll",
        ppoll="ppoll",
        select="select",
        pselect6="pselect6",
        epoll_wait="epoll_wait",
        epoll_pwait="epoll_pwait",
        epoll_pwait2="epoll_pwait2",
        nanosleep="nanosleep",
        clock_nanosleep="clock_nanosleep-monotonic-abs",
        futex="futex-wait_bitset-monotonic",
        futex_wait="futex_wait-monotonic",
        futex_waitv="futex_waitv-monotonic",
        semtimedop="semtimedop",
        mq_timedsend="mq_timedsend",
        mq_timedreceive="mq_timedreceive",
        rt_sigtimedwait="rt_sigtimedwait",
        io_getevents="io_getevents",
        io_pgetevents="io_pgetevents",
        recvmmsg="recvmmsg",
    ),
    **judged(
        _TIMERS,
        alarm="alarm",
        setitimer="setitimer",
        timer_create="timer-monotonic-rel",
        timer_settime="timer-monotonic-abs",
        timer_getoverrun="timer-overrun",
        timerfd_create="timerfd-monotonic-rel",
        timerfd_settime="timerfd-monotonic-abs",
    ),
    **judged(_STARTING, execve="exec", execveat="execveat-dir"),
    **judged(TIMEOUTS, setsockopt="SO_SNDTIMEO", getsockopt="SO_RCVTIMEO"),
    **rows(_FILE_TIMES, "utime utimes futimesat utimensat"),
    **rows(_SETTING, "settimeofday clock_settime"),
    "wait4": Virtual("faces/test_cpu_time.py::test_cpu_time_of_children_is_scaled_too[10]"),
    **rows(
        NONE,
        """
        close mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pwrite64
        access pipe sched_yield mremap msync mincore madvise shmget shmat dup dup2 pause
        getpid socket shutdown bind listen getsockname getpeername socketpair clone fork
        vfork exit kill uname semget semop shmdt msgget msgsnd msgrcv fcntl flock fsync
        fdatasync truncate ftruncate getdents getcwd chdir fchdir rename mkdir rmdir creat
        link unlink symlink readlink chmod fchmod chown fchown lchown umask getuid getgid
        setuid setgid geteuid getegid setpgid getppid getpgrp setsid setreuid setregid
        getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid
        setfsgid getsid capget capset rt_sigpending rt_sigqueueinfo rt_sigsuspend
        sigaltstack mknod uselib personality ustat statfs fstatfs sysfs getpriority
        setpriority sched_setparam sched_getparam sched_setscheduler sched_getscheduler
        sched_get_priority_max sched_get_priority_min mlock munlock mlockall munlockall
        vhangup modify_ldt pivot_root _sysctl arch_prctl chroot sync mount umount2 swapon
        swapoff reboot sethostname setdomainname iopl ioperm create_module init_module
        delete_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall
        tuxcall security vserver gettid readahead setxattr lsetxattr fsetxattr getxattr
        lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
        fremovexattr tkill sched_setaffinity sched_getaffinity set_thread_area
        get_thread_area io_setup io_destroy io_submit io_cancel lookup_dcookie epoll_create
        epoll_ctl_old epoll_wait_old epoll_create1 epoll_ctl timer_delete remap_file_pages
        getdents64 set_tid_address restart_syscall fadvise64 exit_group tgkill mbind
        set_mempolicy get_mempolicy mq_open mq_unlink mq_notify mq_getsetattr kexec_load
        ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages
        mkdirat mknodat fchownat unlinkat renameat linkat symlinkat readlinkat fchmodat
        faccessat set_robust_list get_robust_list tee sync_file_range vmsplice move_pages
        signalfd eventfd fallocate signalfd4 eventfd2 dup3 pipe2 inotify_init1 pwritev
        rt_tgsigqueueinfo fanotify_init fanotify_mark name_to_handle_at open_by_handle_at
        syncfs setns getcpu process_vm_readv process_vm_writev kcmp finit_module renameat2
        seccomp getrandom memfd_create kexec_file_load userfaultfd membarrier mlock2
        copy_file_range pwritev2 pkey_mprotect pkey_alloc pkey_free rseq pidfd_send_signal
        open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open close_range
        pidfd_getfd faccessat2 process_madvise mount_setattr landlock_create_ruleset
        landlock_add_rule landlock_restrict_self memfd_secret process_mrelease
        set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake
        futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr
        lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat
        open_tree_attr file_getattr file_setattr uretprobe uprobe rseq_slice_yield listns
        """,
    ),
    "io_uring_setup": Refused("ENOSYS"),
    "clone3": Refused("ENOSYS"),
    "ptrace": Refused("EPERM"),
    # Without a ring these calls do nothing.
    "io_uring_enter": Refused("EBADF"),
    "io_uring_register": Refused("EINVAL"),
    "clock_getres": Limit(
        "`clock_getres` is the kernel's, whatever the rate",
        "clock_reads/test_clock_reads.py::test_every_way_to_read_a_clock_agrees[dynamic-10]",
    ),
    "ioctl": Limit("SIOCGSTAMP"),
    "openat2": Limit("`openat2`"),
    "preadv": Limit("`preadv`"),
    "preadv2": Limit("`preadv`"),
    **rows(
        SetOnce("not virtual for other calls (`sendmmsg`, `recvmmsg`, `sendfile`) and `splice`"),
        "sendmmsg sendfile splice",
    ),
    "getrlimit": Limit("RLIMIT_CPU"),
    "setrlimit": Limit("RLIMIT_CPU"),
    "prlimit64": Limit("RLIMIT_CPU"),
    "sched_rr_get_interval": kept("`sched_rr_get_interval`", "sched_rr_get_interval"),
    "sched_setattr": kept("SCHED_DEADLINE", "sched_setattr"),
    "sched_getattr": kept("SCHED_DEADLINE", "sched_getattr"),
    "prctl": kept("timer slack", "prctl"),
    "syslog": Limit("the kernel's log"),
    "acct": Limit("process accounting"),
    **rows(
        Limit("grace times of quotas", needs="CONFIG_QFMT_V2 or CONFIG_XFS_QUOTA"),
        "quotactl quotactl_fd",
    ),
    "add_key": Limit("the expiry of keys"),
    "request_key": Limit("the expiry of keys"),
    "keyctl": Limit("the expiry of keys"),
    "unshare": Limit("`unshare --time`", TIME_NAMESPACES),
    "perf_event_open": Limit("perf"),
    "bpf": Limit("BPF's clocks"),
}

#: By the names of linux/time.h.
CLOCKS: dict[str, Row] = {
    **rows(
        READ,
        """
        CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
        CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
        CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
        """,
    ),
    "CLOCK_SGI_CYCLE": Refused("EINVAL"),
}

#: Netlink, devices, control groups, fields of files: by names of our own, or those of the headers.
OTHERS: dict[str, Row] = {
    **rows(
        READ,
        "cpu_columns btime start_of_a_process schedstat sysvipc_shm sysvipc_msg sysvipc_sem",
    ),
    "VTIME": Limit("VTIME of terminals"),
    "TASKSTATS": Limit("taskstats"),
    "cgroup_cpuacct": Limit("cpuacct"),
    "cgroup_freezer": Limit("cgroup.stat.local"),
    "INET_DIAG": Limit("timers of sockets (`ss -o`)"),
    "PROC_EVENT_*": Limit("events of processes"),
    "siginfo": Limit("the CPU times in the siginfo of SIGCHLD"),
    "core": Limit("the CPU times in a core"),
    "core_pattern": Limit(
        "`%t` in a core's name", needs="a pattern for cores, which is the whole machine's"
    ),
    "mount_options": Limit(
        "times in the options of a mount",
        "faces/test_real_files.py::test_a_file_shows_inside_what_it_shows_the_host"
        "[/proc/fs/ext4/*/options]",
    ),
    "firewall_time": Limit("rules of the firewall that match on the time"),
    "sysinfo_loads": kept("load averages of `sysinfo`", "sysinfo_loads"),
    "RLIMIT_RTTIME": kept("RLIMIT_RTTIME", "RLIMIT_RTTIME"),
    "IPV6_FLOWLABEL_MGR": kept("flow labels", "IPV6_FLOWLABEL_MGR"),
    "input_event": Limit("input events", needs="an input device"),
    "timer_list": Limit("/proc/timer_list"),
    "sched": Limit("/proc/PID/sched"),
    "fdinfo": Limit("the fdinfo of timer descriptors"),
    "vdso_of_the_kernel": Limit("/proc/self/auxv tells the kernel's vDSO"),
    "rdtsc": Limit(
        "**rdtsc and rdtscp**",
        "faces/test_tsc.py::test_the_time_stamp_counter_is_the_machines_by_default",
    ),
    "utmp": Limit("utmp and wtmp", needs="a session that a program on the host's clock has opened"),
    "audit": Limit("audit"),
    "guest": Limit("**A virtual machine started inside**"),
}
