// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// The in-band variant: stamps travel with the packet, in fields that a bridge, NAT and the way between namespaces leave alone.
// Nothing is attached to system calls; only two devices pay.
//
// Egress: the container's device writes when the packet left it, as a monotonic time stamp; the outer device reads it. Ingress:
// the outer device writes when the packet came; the container's device reads it and turns it into the wall time that
// SO_TIMESTAMP gives the program, which is then that of the outer device.
//
// A packet that has a time stamp already keeps it: TCP's say when to send. A tag in the hash tells ours from others.

#include "kernel.h"
#include "record.h"

// In network order.
#define ETH_P_IP 0x0008
#define ETH_P_IPV6 0xdd86
#define ETH_HEADER 14

#define TAG 0x4c540000
#define TAG_MASK 0xffff0000
#define TC_NEXT -1
// Newer than some systems' headers.
#define CLOCK_OF_WALL 0

// Of a namespace: what the ring had no room for; what could not be stamped, or came without a stamp.
struct counts {
	__u64 dropped;
	__u64 unstamped;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

// How far the wall clock is ahead of the monotonic one, in ns.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} wall_offset SEC(".maps");

// The namespace whose devices these programs are for: it has programs of its own.
const volatile __u16 space;

static struct counts *counts_of(__u32 number)
{
	return bpf_map_lookup_elem(&counts, &number);
}

static int unstamped(void)
{
	struct counts *count = counts_of(space);

	if (count)
		__sync_fetch_and_add(&count->unstamped, 1);
	return TC_NEXT;
}

// `inner` is when it passed the container's device.
static void tell(struct __sk_buff *skb, __u64 inner, __u64 outer, __u8 flags, __u16 of)
{
	struct record record = {};
	__u32 at = ETH_HEADER, above;
	__u8 header[40] = {};
	struct counts *count;

	if (bpf_skb_load_bytes(skb, at, header, 20))
		return;
	if (header[0] >> 4 == 4) {
		record.protocol = header[9];
		if ((header[6] & 0x1f) || header[7])
			flags |= LATER_FRAGMENT;
		at += (header[0] & 15) * 4;
	} else {
		record.protocol = header[6];
		flags |= IPV6;
		at += 40;
	}
	if (skb->len <= at)
		return;
	// As much as there is of it.
	above = skb->len - at;
	if (above > sizeof(record.above))
		above = sizeof(record.above);
	// The verifier has to see it where it is used.
	barrier_var(above);
	if (!above || above > sizeof(record.above) ||
	    bpf_skb_load_bytes(skb, at, record.above, above))
		return;
	if (quotes_packet(record.protocol, record.above[0]))
		bpf_skb_load_bytes(skb, at + (flags & IPV6 ? 48 : 28), record.above + 8, 8);
	record.outer = outer;
	record.call = inner;
	record.device = flags & INGRESS ? inner - outer : outer - inner;
	record.length = skb->len - ETH_HEADER;
	record.space = of;
	record.flags = flags;
	if (bpf_ringbuf_output(&ring, &record, sizeof(record), BPF_RB_NO_WAKEUP)) {
		count = counts_of(of);
		if (count)
			__sync_fetch_and_add(&count->dropped, 1);
	}
}

static bool is_ip(struct __sk_buff *skb)
{
	return skb->protocol == ETH_P_IP || skb->protocol == ETH_P_IPV6;
}

SEC("tcx/egress")
int leave_inside(struct __sk_buff *skb)
{
	if (!is_ip(skb))
		return TC_NEXT;
	if (skb->tstamp)
		return unstamped();
	bpf_set_hash(skb, TAG | space);
	bpf_skb_set_tstamp(skb, bpf_ktime_get_ns(), BPF_SKB_TSTAMP_DELIVERY_MONO);
	return TC_NEXT;
}

SEC("tcx/egress")
int leave_outer(struct __sk_buff *skb)
{
	__u64 stamp = skb->tstamp;

	if (!is_ip(skb) || (skb->hash & TAG_MASK) != TAG || !stamp ||
	    skb->tstamp_type != BPF_SKB_TSTAMP_DELIVERY_MONO)
		return TC_NEXT;
	tell(skb, stamp, bpf_ktime_get_ns(), 0, skb->hash & ~TAG_MASK);
	return TC_NEXT;
}

SEC("tcx/ingress")
int arrive_outer(struct __sk_buff *skb)
{
	if (is_ip(skb))
		bpf_skb_set_tstamp(skb, bpf_ktime_get_ns(), BPF_SKB_TSTAMP_DELIVERY_MONO);
	return TC_NEXT;
}

SEC("tcx/ingress")
int arrive_inside(struct __sk_buff *skb)
{
	__u64 stamp = skb->tstamp, *ahead;
	__u32 only = 0;

	if (!is_ip(skb))
		return TC_NEXT;
	if (!stamp || skb->tstamp_type != BPF_SKB_TSTAMP_DELIVERY_MONO)
		return unstamped();
	tell(skb, bpf_ktime_get_ns(), stamp, INGRESS, space);
	ahead = bpf_map_lookup_elem(&wall_offset, &only);
	if (ahead)
		bpf_skb_set_tstamp(skb, stamp + *ahead, CLOCK_OF_WALL);
	return TC_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
