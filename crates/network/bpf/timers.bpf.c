// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// TCP's timers by the network's clock: run by the kernel for sockets of the nodes' control groups. How long each is in real time
// stands in a map, anew with each change of the clock's rate; 0 is the kernel's own.

#include <linux/bpf.h>
#include <linux/tcp.h>
#include <bpf/bpf_helpers.h>

#define SOL_TCP 6
// Of the kernel's <net/tcp.h> and newer <linux/tcp.h>.
#define RTO_MAX_MS 44

struct timers {
	__s32 first_ticks; // until a SYN, and its answer, is sent again
	__s32 least_us;    // the least retransmission timeout
	__s32 most_ms;     // the greatest
	__s32 delack_us;   // the longest delay of an acknowledgement
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct timers);
} timers SEC(".maps");

static void set(struct bpf_sock_ops *ops, int option, __s32 value)
{
	// A kernel that does not know one keeps its own.
	if (value > 0)
		bpf_setsockopt(ops, SOL_TCP, option, &value, sizeof(value));
}

SEC("sockops")
int keep_time(struct bpf_sock_ops *ops)
{
	__u32 zero = 0;
	struct timers *now = bpf_map_lookup_elem(&timers, &zero);

	if (!now)
		return 1;
	switch (ops->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		ops->reply = now->first_ticks > 0 ? now->first_ticks : -1;
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB: // what it accepts begins with it
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		set(ops, TCP_BPF_RTO_MIN, now->least_us);
		set(ops, TCP_BPF_DELACK_MAX, now->delack_us);
		set(ops, RTO_MAX_MS, now->most_ms);
		break;
	}
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
