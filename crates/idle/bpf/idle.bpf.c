// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// The tasks of a clock, and which of them sleep. `idle` reports when no task seems to run any more. `look` finds the tasks among
// all of the machine's, `look_at_listed` looks at those in its list.
//
// A task belongs to the clock if it is in `tasks`; its children enter the map when they begin. An experiment watches many clocks
// with one set of programs: each clock is a group of tasks. The program on switches only shows when a look is worth it: its count
// is wrong after a lost event. The look itself asks each task.
// Every task of the machine pays for the program on switches, so it is attached only while time leaps again and again.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define INTERRUPTIBLE 0x01
#define DEAD 0x80

struct sched_entity {
	__u64 sum_exec_runtime;
	unsigned char sched_delayed;
} __attribute__((preserve_access_index));

struct sched_info {
	unsigned long long run_delay;
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
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

// The state of a task by the events; unknown (0) at first. A state from before the last attachment of `on_switch` counts as unknown
// too: the events since then are lost.
enum { RUNS = 1, SLEEPS = 2, STATES = 4 };
#define SINCE_ATTACHED(state) (attached * STATES + (state))

// Number of times that `on_switch` has been attached.
__u32 attached;

// A task of the clock. Numbers are used again: `task` is the address of the one that is meant, 0 before the first look.
struct member {
	__u64 task;
	__u32 state;
	__u32 group;
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

// Number of running tasks in each group, by the events.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} running SEC(".maps");

// Number of times that a task has come, gone, or changed its number.
__u64 changes;

// One task at one look. `runs` shows whether it has run between two looks. `ran` and `waited` are nanoseconds on a processor, and
// in the queue for one, up to its last switch. `slept` counts how often it has left its processor by itself.
struct task_state {
	__u32 pid;
	__u32 thread;
	__u64 runs;
	__u64 ran;
	__u64 waited;
	__u64 slept;
	__u32 asleep;
	__u32 group;
};

// Tasks for `look_at_listed`. The caller writes `length` thread numbers, the program fills in the rest.
#define LISTED 512
struct task_state listed[LISTED];
__u32 length;

// Weak: an older kernel has none, and can run the other programs.
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

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
	__s64 *count;

	if (member && member->state != SINCE_ATTACHED(RUNS)) {
		member->state = SINCE_ATTACHED(RUNS);
		count = bpf_map_lookup_elem(&running, &member->group);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	// A task that was about to sleep and has a signal goes on; kernels differ in how they report it.
	if (preempt || !(prev_state & (INTERRUPTIBLE | DEAD)) || !prev->__state)
		return 0;
	member = member_of(prev);
	if (!member)
		return 0;
	count = bpf_map_lookup_elem(&running, &member->group);
	if (!count)
		return 0;
	if (member->state == SINCE_ATTACHED(RUNS))
		__sync_fetch_and_add(count, -1);
	member->state = SINCE_ATTACHED(SLEEPS);
	if (*count <= 0)
		bpf_ringbuf_output(&idle, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_clone, struct task_struct *child)
{
	__u32 parent = (__u32)bpf_get_current_pid_tgid(), thread = child->pid;
	struct member born = { .task = (__u64)child }, *member = bpf_map_lookup_elem(&tasks, &parent);

	if (!member)
		return 0;
	born.group = member->group;
	bpf_map_update_elem(&tasks, &thread, &born, BPF_ANY);
	__sync_fetch_and_add(&changes, 1);
	return 0;
}

SEC("tp_btf/sched_process_free")
int BPF_PROG(on_end, struct task_struct *p)
{
	struct member *member = member_of(p);
	__u32 thread = p->pid;

	if (!member || (member->task && member->task != (__u64)p))
		return 0;
	bpf_map_delete_elem(&tasks, &thread);
	__sync_fetch_and_add(&changes, 1);
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
	now.group = member->group;
	bpf_map_delete_elem(&tasks, &before);
	bpf_map_update_elem(&tasks, &thread, &now, BPF_ANY);
	__sync_fetch_and_add(&changes, 1);
	return 0;
}

static __always_inline void read_state(struct task_struct *task, struct task_state *state)
{
	// A task that sleeps may be left in the queue for a while. One that is still on its processor goes to sleep, but has
	// not been counted yet.
	_Bool queued = task->on_rq;

	if (bpf_core_field_exists(task->se.sched_delayed) && task->se.sched_delayed)
		queued = 0;
	state->pid = task->tgid;
	state->thread = task->pid;
	state->asleep = (task->__state & INTERRUPTIBLE) && !queued && !task->on_cpu;
	// Only after that: a task that has left its processor has been counted.
	barrier();
	state->runs = task->nvcsw + task->nivcsw;
	state->ran = task->se.sum_exec_runtime;
	state->slept = task->nvcsw;
	state->waited = 0;
	if (bpf_core_field_exists(task->sched_info.run_delay))
		state->waited = task->sched_info.run_delay;
}

SEC("iter/task")
int look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;
	struct task_state state = {};

	// A task that ends still reports to its parent, until it has left its processor.
	if (!task || (task->exit_state && !task->on_cpu))
		return 0;
	member = member_of(task);
	// If the end of a task was missed, another may have got its number.
	if (!member || (member->task && member->task != (__u64)task))
		return 0;
	member->task = (__u64)task;
	state.group = member->group;
	read_state(task, &state);
	bpf_seq_write(ctx->meta->seq, &state, sizeof(state));
	return 0;
}

static long look_at(__u32 place, _Bool *gone)
{
	struct task_struct *task;
	struct member *member;

	if (place >= LISTED)
		return 1;
	task = bpf_task_from_pid(listed[place].thread);
	if (!task) {
		*gone = 1;
		return 1;
	}
	member = member_of(task);
	if (member && member->task == (__u64)task && !task->exit_state)
		read_state(task, &listed[place]);
	else
		*gone = 1;
	bpf_task_release(task);
	return 0;
}

// Returns 1 if one of the listed tasks is gone. `changes` shows whether others have come.
SEC("syscall")
int look_at_listed(void *ctx)
{
	_Bool gone = 0;

	bpf_loop(length, look_at, &gone, 0);
	return gone;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
