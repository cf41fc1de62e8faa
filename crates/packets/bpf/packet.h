/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Identification of packets, and the writing of records.
 */

#ifndef LORENTZ_PACKET_H
#define LORENTZ_PACKET_H

#include "tables.h"

static struct space *watched(__u64 cookie)
{
	__u32 at = cookie % PLACES, number = place_numbers[at], *found;
	struct space *space;

	if (!place_cookies[at])
		return 0;
	if (place_cookies[at] != cookie) {
		found = bpf_map_lookup_elem(&spaces, &cookie);
		if (!found)
			return 0;
		number = *found;
	}
	space = bpf_map_lookup_elem(&numbered, &number);
	return space && space->on && space->cookie == cookie ? space : 0;
}

static struct space *space_of(__u32 number)
{
	struct space *space = bpf_map_lookup_elem(&numbered, &number);

	return space && space->cookie ? space : 0;
}

static bool is_outer(const struct net_device *dev)
{
	__u32 number = dev->ifindex;

	for (int i = 0; i < OUTERS && outer_devices[i]; i++)
		if (outer_devices[i] == number && outer_cookies[i] == dev->nd_net.net->net_cookie)
			return 1;
	return 0;
}

static __u32 span(__u64 from, __u64 to)
{
	__u64 span = to - from;

	return span >= NO_DEVICE ? NO_DEVICE - 1 : span;
}

// Puts a record into the ring buffer and wakes no reader. Readers come by ten times a second. A wake-up for each
// record would cost more than all the rest.
static void tell(struct space *space, struct record *record)
{
	if (bpf_ringbuf_output(&ring, record, sizeof(*record), BPF_RB_NO_WAKEUP))
		COUNT(space, dropped);
}

static void tell_miss(struct space *space, struct record *record, int reason)
{
	record->flags = (record->flags & 0xf) | MISS(reason);
	tell(space, record);
}

static bool same(const struct mark *a, const struct mark *b)
{
	return a->ip == b->ip && a->payload == b->payload;
}

static __u64 data_at(const struct sk_buff *skb)
{
	__u64 at = skb->data - skb->head;

	// Only the difference of the two pointers may enter a calculation: the compiler must not make it part of a sum.
	barrier_var(at);
	return at;
}

// Reads 8 bytes behind the IP header of the packet that an ICMP error quotes.
static void read_quoted(const struct sk_buff *skb, __u64 at, struct header *header)
{
	__u64 ip = header->flags & IPV6 ? 40 : 20;

	header->quotes = 1;
	at += ip + 8 + ip;
	if (at + 8 <= skb->tail)
		bpf_probe_read_kernel(header->quoted, sizeof(header->quoted), skb->head + at);
}

// Reads the IP header, `at` bytes into the data, and 16 bytes after it.
static bool read_header(const struct sk_buff *skb, __u64 at, struct header *header)
{
	__u64 room = (__u64)skb->tail - at;
	__u8 bytes[56] = {};

	if (room < 20 || room > 0x100000)
		return 0;
	if (room > sizeof(bytes))
		room = sizeof(bytes);
	if (bpf_probe_read_kernel(bytes, room, skb->head + at))
		return 0;
	__builtin_memset(header, 0, sizeof(*header));
	if (bytes[0] >> 4 == 4) {
		header->protocol = bytes[9];
		header->ttl = bytes[8];
		// Length, identification, fragment offset; a router may change the other fields.
		header->mark.ip = *(__u64 *)bytes >> 16;
		if ((bytes[6] & 0x1f) || bytes[7])
			header->flags = LATER_FRAGMENT;
		if ((bytes[0] & 15) == 5)
			__builtin_memcpy(header->above, bytes + 20, 16);
	} else if (bytes[0] >> 4 == 6) {
		header->protocol = bytes[6];
		header->ttl = bytes[7];
		header->flags = IPV6;
		// Flow label, length, next header.
		header->mark.ip = *(__u64 *)bytes & 0x00ffffffffff0f00;
		__builtin_memcpy(header->above, bytes + 40, 16);
	} else {
		return 0;
	}
	header->mark.payload = *(__u64 *)(header->above + 8);
	header->length = skb->len - (at - data_at(skb));
	if (quotes_packet(header->protocol, header->above[0]))
		read_quoted(skb, at, header);
	return 1;
}

static void fill(struct record *record, __u16 space, struct header *header)
{
	record->space = space;
	record->length = header->length;
	record->protocol = header->protocol;
	record->flags |= header->flags;
	__builtin_memcpy(record->above, header->above, sizeof(record->above));
	if (header->quotes)
		__builtin_memcpy(record->above + 8, header->quoted, sizeof(header->quoted));
}

#endif
