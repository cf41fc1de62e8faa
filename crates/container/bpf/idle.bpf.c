// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Counts how many tasks of one clock run or are about to: so that whoever skips idle time knows that all is idle, and is
// told at once.
//
// A task belongs to the clock if it stands in `tasks`; its children do from their first moment on. It is counted while it
// runs, waits for a processor, or sleeps in a way that is not idleness (for the disk, stopped, traced). Between the
// decision to wake a task and its being runnable it is counted in `waking`: the processor that decides may itself go idle
// in between. Idle is where both counts are zero.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define INTERRUPTIBLE 0x01
#define DEAD 0x80
#define REMEMBERED 256

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

enum state { UNKNOWN, RUNS, SLEEPS };

struct task {
	__u32 state;
	__u32 waking;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} idle SEC(".maps");

// Read by the skipper, and by the last task to go idle.
__s64 running;
__s64 waking;
// How often a task of the clock was given a processor, and which the last ones were.
__u64 runs;
__u32 ran[REMEMBERED];
// How many tasks there have been.
__u64 births;

static struct task *of(struct task_struct *p)
{
	__u32 tid = p->pid;

	return bpf_map_lookup_elem(&tasks, &tid);
}

static void begins(struct task *task)
{
	if (task->state != RUNS) {
		task->state = RUNS;
		__sync_fetch_and_add(&running, 1);
	}
}

static void ends(struct task *task)
{
	__u64 now = 0;
	__u32 before = task->state;

	task->state = SLEEPS;
	if (before != RUNS)
		return;
	if (__sync_fetch_and_add(&running, -1) == 1 && waking == 0)
		bpf_ringbuf_output(&idle, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct task *task = of(next);
	__u64 place;
	__u32 tid;

	if (task) {
		begins(task);
		place = __sync_fetch_and_add(&runs, 1);
		ran[place % REMEMBERED] = next->pid;
	}
	if (preempt || !(prev_state & (INTERRUPTIBLE | DEAD)))
		return 0;
	task = of(prev);
	if (!task)
		return 0;
	ends(task);
	if (prev_state & DEAD) {
		tid = prev->pid;
		bpf_map_delete_elem(&tasks, &tid);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct task *task = of(p);

	if (task) {
		__sync_fetch_and_add(&task->waking, 1);
		__sync_fetch_and_add(&waking, 1);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	struct task *task = of(p);

	if (task) {
		begins(task);
		if (task->waking) {
			__sync_fetch_and_add(&task->waking, -1);
			__sync_fetch_and_add(&waking, -1);
		}
	}
	return 0;
}

SEC("tp_btf/task_newtask")
int BPF_PROG(on_birth, struct task_struct *child)
{
	struct task born = { .state = RUNS };
	__u32 parent = (__u32)bpf_get_current_pid_tgid(), tid = child->pid;

	if (!bpf_map_lookup_elem(&tasks, &parent))
		return 0;
	__sync_fetch_and_add(&births, 1);
	__sync_fetch_and_add(&running, 1);
	if (bpf_map_update_elem(&tasks, &tid, &born, BPF_ANY))
		__sync_fetch_and_add(&running, -1);
	return 0;
}

// A thread that is not its process's first takes the first's number when it executes another program.
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int before)
{
	struct task *task = bpf_map_lookup_elem(&tasks, &before), now;
	__u32 tid = p->pid;

	if (!task || (__u32)before == tid)
		return 0;
	now = *task;
	bpf_map_delete_elem(&tasks, &before);
	bpf_map_update_elem(&tasks, &tid, &now, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
