// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Programs that begin inside a container and are on no clock: they have entered it from outside.
//
// A program is inside if it is in one of the namespaces that the container has for itself, or in its control group. A program is on a
// clock if it has a filter with a listener: each program that Lorentz starts has one before it executes anything. The program on
// execs reports the others, and keeps the task in the kernel until the monitor has interrupted or killed it. So no instruction of
// the newcomer's program runs in the host's time. A task that is held keeps its processor, and the monitor needs one: of as many
// newcomers at a time as there are processors, one is reported and not held.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define preserve __attribute__((preserve_access_index))

// Of include/linux/sched/jobctl.h and signal.h.
#define JOBCTL_TRAP_STOP (1UL << 19)
#define SIGNAL_GROUP_EXIT 0x4

// The longest stay in the kernel. A monitor needs some 50 us; one that gets no processor for so long is late.
#define MAX_HOLD_NS 20000000
// The kernel's BPF_MAX_LOOPS: more than MAX_HOLD_NS allows.
#define MAX_LOOKS (8 << 20)
// A process with more filters than this counts as one without a listener.
#define MAX_FILTERS 32

struct ns_common {
	unsigned int inum;
} preserve;

struct mnt_namespace {
	struct ns_common ns;
} preserve;

struct pid_namespace {
	struct ns_common ns;
} preserve;

struct time_namespace {
	struct ns_common ns;
} preserve;

struct nsproxy {
	struct mnt_namespace *mnt_ns;
	struct pid_namespace *pid_ns_for_children;
	struct time_namespace *time_ns;
} preserve;

struct notification;

struct seccomp_filter {
	struct notification *notif;
	struct seccomp_filter *prev;
} preserve;

struct seccomp {
	struct seccomp_filter *filter;
} preserve;

struct signal_struct {
	unsigned int flags;
} preserve;

struct task_struct {
	int tgid;
	unsigned long jobctl;
	struct signal_struct *signal;
	struct nsproxy *nsproxy;
	struct seccomp seccomp;
} preserve;

// The number of tasks that may be held at a time, and of those that are.
const volatile __u32 max_held;
__u32 held;

// The container's own namespaces by their inodes, and its control group by id and depth; 0: it has none.
const volatile __u32 mount_namespace, pid_namespace, time_namespace, group_depth;
const volatile __u64 group;

// The process ids of newcomers.
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} newcomers SEC(".maps");

static __always_inline _Bool is_inside(struct task_struct *task)
{
	struct nsproxy *of = task->nsproxy;

	if (mount_namespace && of->mnt_ns->ns.inum == mount_namespace)
		return 1;
	if (pid_namespace && of->pid_ns_for_children->ns.inum == pid_namespace)
		return 1;
	if (time_namespace && of->time_ns->ns.inum == time_namespace)
		return 1;
	return group && bpf_get_current_ancestor_cgroup_id(group_depth) == group;
}

static __always_inline _Bool is_on_a_clock(struct task_struct *task)
{
	struct seccomp_filter *filter = task->seccomp.filter;

	for (int i = 0; i < MAX_FILTERS && filter; i++) {
		if (filter->notif)
			return 1;
		filter = filter->prev;
	}
	return 0;
}

// Returns 1 when the monitor has interrupted or killed the current task, or the time is over.
static long look(__u32 round, __u64 *until)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if ((task->jobctl & JOBCTL_TRAP_STOP) || (task->signal->flags & SIGNAL_GROUP_EXIT))
		return 1;
	return bpf_ktime_get_ns() >= *until;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	__u32 pid = task->tgid;
	__u64 until;

	if (!is_inside(task) || is_on_a_clock(task))
		return 0;
	if (bpf_ringbuf_output(&newcomers, &pid, sizeof(pid), BPF_RB_FORCE_WAKEUP))
		return 0;
	if (__sync_fetch_and_add(&held, 1) < max_held) {
		until = bpf_ktime_get_ns() + MAX_HOLD_NS;
		bpf_loop(MAX_LOOKS, look, &until, 0);
	}
	__sync_fetch_and_add(&held, -1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
