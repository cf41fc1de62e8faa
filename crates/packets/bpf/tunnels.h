/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Packets through tunnels. The sk_buff stays the same through them, the header at its front does not: on the way out a tunnel puts
 * its own before it, and remembers where the packet's begins; on the way in the packet comes out of the tunnel's device.
 */

#ifndef LORENTZ_TUNNELS_H
#define LORENTZ_TUNNELS_H

#include "packet.h"

// Upper bound of what a tunnel puts before a packet, bytes: IPv6, UDP, Geneve with all options, Ethernet.
#define MAX_TUNNEL_HEADERS 320
#define KINDS 8

// Kinds of devices that were met: the address of their operations. The lowest bit is set if they are tunnels. Race: two processors
// may fill one place. The later kind stays, and the other one takes the next place.
__u64 device_kinds[KINDS];

static __u64 kind_of_device(const struct net_device *dev)
{
	char kind[8] = {};

	bpf_probe_read_kernel(kind, sizeof(kind) - 1, BPF_CORE_READ(dev, rtnl_link_ops, kind));
	// Those of GRE and of IPv6 have further letters behind these.
	return !bpf_strncmp(kind, 5, "vxlan") || !bpf_strncmp(kind, 6, "geneve") ||
	       !bpf_strncmp(kind, 3, "gre") || !bpf_strncmp(kind, 6, "ip6gre") ||
	       !bpf_strncmp(kind, 6, "ip6tnl") || !bpf_strncmp(kind, 4, "ipip") ||
	       !bpf_strncmp(kind, 3, "sit");
}

static bool is_tunnel(const struct net_device *dev)
{
	__u64 operations = (__u64)dev->rtnl_link_ops;

	if (!operations)
		return 0;
	for (int i = 0; i < KINDS; i++) {
		__u64 known = device_kinds[i];

		if (!known)
			known = device_kinds[i] = (__u64)BPF_CORE_READ(dev, rtnl_link_ops) |
						  kind_of_device(dev);
		if ((known & ~1ull) == operations)
			return known & 1;
	}
	return 0;
}

// Whether `skb`, on its way out, is the packet with this mark, or has it in a tunnel.
static bool carries(const struct sk_buff *skb, const struct mark *mark)
{
	struct header header;

	if (read_header(skb, skb->network_header, &header) && same(mark, &header.mark))
		return 1;
	return skb->inner_network_header && read_header(skb, skb->inner_network_header, &header) &&
	       same(mark, &header.mark);
}

// Handles a packet that comes out of a tunnel: its own header has the mark from here on.
static void unwrap(const struct sk_buff *skb)
{
	__u64 key = (__u64)skb;
	struct arrived *found = bpf_map_lookup_elem(&arrived, &key);
	struct header header;

	if (!found || !found->outer || !read_header(skb, data_at(skb), &header))
		return;
	// Another packet may have the address of one that the host has kept.
	if (found->length <= header.length || found->length > header.length + MAX_TUNNEL_HEADERS)
		return;
	found->mark = header.mark;
	found->length = header.length;
}

#endif
