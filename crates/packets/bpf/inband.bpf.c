// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// The in-band variant: timestamps travel with the packet, in fields that a bridge, NAT and the way between
// namespaces leave alone. No program is attached to system calls; only two devices have a cost.
//
// Egress: the container's device writes the time at which the packet left it, as a monotonic timestamp. The outer
// device reads it. Ingress: the outer device writes the time at which the packet came. The container's device reads
// it and converts it to the wall time that SO_TIMESTAMP gives the program: the program gets the time of the outer
// device.
//
// A packet that has a timestamp already keeps it: TCP's timestamps say when to send. A tag in the hash
// distinguishes our timestamps from others.

#include "kernel.h"
#include "record.h"

// In network byte order.
#define ETH_P_IP 0x0008
#define ETH_P_IPV6 0xdd86
#define ETH_HEADER 14

#define TAG 0x4c540000
#define TAG_MASK 0xffff0000
#define TC_NEXT -1
// Some systems' headers lack this value.
#define CLOCK_OF_WALL 0

// Counters of a namespace: records that the ring buffer had no room for; packets without a timestamp.
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

// Offset of the wall clock from the monotonic clock, ns.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} wall_offset SEC(".maps");

// Number of the namespace whose devices these programs are attached to. Each namespace has programs of its own.
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

// Writes a record. `inner` is the time at which the packet passed the container's device, ns.
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
	// Copy as many bytes as the packet has.
	above = skb->len - at;
	if (above > sizeof(record.above))
		above = sizeof(record.above);
	// The verifier must see the bounds at the place of use.
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
