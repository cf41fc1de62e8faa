// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// When each frame left its node: run by a TAP device for every frame that is put into it (TUNSETFILTEREBPF). The emulator takes
// an instant from the queue with each frame that it reads. The queue is shorter than the device's: a frame that finds no place
// here is dropped here, so that the two never come apart.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define KEPT 2048
#define DROPPED 0
#define WHOLE 0xffffffff

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, KEPT);
	__uint(value_size, sizeof(__u64));
} stamps SEC(".maps");

SEC("socket")
int stamp(struct __sk_buff *frame)
{
	__u64 now = bpf_ktime_get_ns();
	return bpf_map_push_elem(&stamps, &now, 0) ? DROPPED : WHOLE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
