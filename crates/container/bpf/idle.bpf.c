// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Which tasks of a clock sleep, for whoever skips idle time: told when none seems to run any more (`idle`), and looked
// through on demand (`look`).
//
// A task belongs to the clock if it stands in `tasks`; its children do from their first moment on. What happens at switches
// only says when a look is worth it: a count kept there may be off, where an event is lost. The look itself asks each task.
// Every task of the machine pays for the program on switches, so it is attached only while time leaps again and again.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define INTERRUPTIBLE 0x01
#define DEAD 0x80

struct sched_entity {
	unsigned char sched_delayed;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int __state;
	int on_rq;
	int on_cpu;
	int exit_state;
	int pid;
	int tgid;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

// What the events know of a task; nothing (0) at first.
enum { RUNS = 1, SLEEPS = 2 };

// A task of the clock. Numbers are used again: `task` is the address of the one that is meant, 0 before the first look.
struct member {
	__u64 task;
	__u64 state;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct member);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} idle SEC(".maps");

// How many tasks run, as far as the events tell.
__s64 running;

// What a look tells of one task. `runs` says whether it has run between two looks.
struct seen {
	__u32 pid;
	__u32 thread;
	__u64 runs;
	__u64 asleep;
};

static struct member *member_of(struct task_struct *p)
{
	__u32 thread = p->pid;

	return bpf_map_lookup_elem(&tasks, &thread);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct member *member = member_of(next);
	__u64 now = 0;

	if (member && member->state != RUNS) {
		member->state = RUNS;
		__sync_fetch_and_add(&running, 1);
	}
	// A task that was about to sleep and has a signal goes on; kernels differ in what they tell of it.
	if (preempt || !(prev_state & (INTERRUPTIBLE | DEAD)) || !prev->__state)
		return 0;
	member = member_of(prev);
	if (!member)
		return 0;
	if (member->state == RUNS)
		__sync_fetch_and_add(&running, -1);
	member->state = SLEEPS;
	if (running <= 0)
		bpf_ringbuf_output(&idle, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_birth, struct task_struct *child)
{
	__u32 parent = (__u32)bpf_get_current_pid_tgid(), thread = child->pid;
	struct member born = { .task = (__u64)child };

	if (bpf_map_lookup_elem(&tasks, &parent))
		bpf_map_update_elem(&tasks, &thread, &born, BPF_ANY);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_end, struct task_struct *p)
{
	struct member *member = member_of(p);
	__u32 thread = p->pid;

	if (member && (member->task == (__u64)p || !member->task))
		bpf_map_delete_elem(&tasks, &thread);
	return 0;
}

// A thread that is not its process's first takes the first's number when it executes another program.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int before)
{
	struct member *member = bpf_map_lookup_elem(&tasks, &before), now = { .task = (__u64)p };
	__u32 thread = p->pid;

	if (!member || (__u32)before == thread)
		return 0;
	now.state = member->state;
	bpf_map_delete_elem(&tasks, &before);
	bpf_map_update_elem(&tasks, &thread, &now, BPF_ANY);
	return 0;
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;
	struct seen seen = {};
	_Bool queued;

	// One that ends still has somebody to tell, until it has left its processor.
	if (!task || (task->exit_state && !task->on_cpu))
		return 0;
	member = member_of(task);
	// Where the end of a task was missed, another may have got its number.
	if (!member || (member->task && member->task != (__u64)task))
		return 0;
	member->task = (__u64)task;
	// A task that sleeps may be left in the queue for a while. One that is still on its processor goes to sleep, but has
	// not been counted yet.
	queued = task->on_rq;
	if (bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed)
		queued = 0;
	seen.pid = task->tgid;
	seen.thread = task->pid;
	seen.asleep = (task->__state & INTERRUPTIBLE) && !queued && !task->on_cpu;
	// After that: who has left its processor has been counted.
	barrier();
	seen.runs = task->nvcsw + task->nivcsw;
	bpf_seq_write(ctx->meta->seq, &seen, sizeof(seen));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
