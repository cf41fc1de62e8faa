/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The record of a packet. */

#ifndef LORENTZ_RECORD_H
#define LORENTZ_RECORD_H

#include "kernel.h"

// Flags of a record.
#define INGRESS 1
#define IPV6 2
#define LATER_FRAGMENT 4
// A further read, by another socket or another call.
#define AGAIN 8
// The same bit in a record of egress: TCP, and `write_seq` is the sequence number of the next byte to be sent.
#define BY_NUMBER 8
// A raw socket sent or read it: also a segment without data is a program's own. The bits below are the reason of a miss.
#define BY_RAW 0x80

// One record for each packet and direction: 64 bytes, with the 8 bytes of the ring buffer's header.
struct record {
	// CLOCK_MONOTONIC, ns: at the outer device; at the entry or exit of the call.
	__u64 outer;
	__u64 call;
	// Between the outer device and that of the namespace, in ns.
	__u32 device;
	// Process id on the host, and inside the container.
	__u32 pid;
	__u32 inner_pid;
	// With BY_NUMBER the sequence number of the next byte to be sent; else, of egress, IP's time to live (IPv6: hop limit).
	__u32 write_seq;
	// Bytes from the IP header on.
	__u16 length;
	__u16 fd;
	__u16 space;
	__u8 protocol;
	__u8 flags;
	__u8 above[16];
};

// Whether the payload of IP is an ICMP error that quotes the beginning of a packet.
static bool quotes_packet(__u8 protocol, __u8 kind)
{
	if (protocol == IPPROTO_ICMP)
		return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12;
	return protocol == IPPROTO_ICMPV6 && kind < 128;
}

#endif
