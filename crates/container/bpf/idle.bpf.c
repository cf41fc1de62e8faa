// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Which tasks of a clock sleep, for whoever skips idle time: told when none seems to run any more (`idle`), and looked
// through on demand (`look`).
//
// A task belongs to the clock if it stands in `tasks`; its children do from their first moment on. The tracepoints only
// say when a look is worth it: a count kept by them may be off, where an event of one of them is lost. The look itself asks
// each task.

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

enum { RUNS = 1, SLEEPS = 2 };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, __u32);
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

static __u32 *state_of(struct task_struct *p)
{
	__u32 thread = p->pid;

	return bpf_map_lookup_elem(&tasks, &thread);
}

static void begins(__u32 *state)
{
	if (*state != RUNS) {
		*state = RUNS;
		__sync_fetch_and_add(&running, 1);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	__u32 *state = state_of(next), thread;
	__u64 now = 0;

	if (state)
		begins(state);
	// A task that was about to sleep and has a signal goes on; kernels differ in what they tell of it.
	if (preempt || !(prev_state & (INTERRUPTIBLE | DEAD)) || !prev->__state)
		return 0;
	state = state_of(prev);
	if (!state)
		return 0;
	if (*state == RUNS)
		__sync_fetch_and_add(&running, -1);
	*state = SLEEPS;
	if (running <= 0)
		bpf_ringbuf_output(&idle, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
	if (prev_state & DEAD) {
		thread = prev->pid;
		bpf_map_delete_elem(&tasks, &thread);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	__u32 *state = state_of(p);

	if (state)
		begins(state);
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_birth, struct task_struct *child)
{
	__u32 parent = (__u32)bpf_get_current_pid_tgid(), thread = child->pid, born = RUNS;

	if (bpf_map_lookup_elem(&tasks, &parent) &&
	    !bpf_map_update_elem(&tasks, &thread, &born, BPF_ANY))
		__sync_fetch_and_add(&running, 1);
	return 0;
}

// A thread that is not its process's first takes the first's number when it executes another program.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int before)
{
	__u32 *state = bpf_map_lookup_elem(&tasks, &before), thread = p->pid, now;

	if (!state || (__u32)before == thread)
		return 0;
	now = *state;
	bpf_map_delete_elem(&tasks, &before);
	bpf_map_update_elem(&tasks, &thread, &now, BPF_ANY);
	return 0;
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seen seen = {};
	_Bool queued;

	if (!task || !state_of(task) || task->exit_state)
		return 0;
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
