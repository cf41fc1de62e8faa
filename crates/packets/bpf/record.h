/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the programs tell of a packet. */

#ifndef LORENTZ_RECORD_H
#define LORENTZ_RECORD_H

#include "kernel.h"

// What a record says besides its times.
#define INGRESS 1
#define IPV6 2
#define LATER_FRAGMENT 4
// Read once more, by another socket or another call.
#define AGAIN 8
// The same bit on the way out: of TCP, and `write_seq` is the number of the byte that was the next to be sent.
#define BY_NUMBER 8

// One record for each packet and direction. With the ring's own 8 bytes: 64.
struct record {
	// CLOCK_MONOTONIC: at the outer device; at the entry or exit of the call.
	__u64 outer;
	__u64 call;
	// Between the outer device and that of the namespace, in ns.
	__u32 device;
	// As the host and as the container count.
	__u32 pid;
	__u32 inner_pid;
	// TCP: number of the first byte that the call wrote, or of the next one to be sent.
	__u32 write_seq;
	// From the IP header on.
	__u16 length;
	__u16 fd;
	__u16 space;
	__u8 protocol;
	__u8 flags;
	__u8 above[16];
};

// Whether IP carries a message of ICMP that tells of a packet, of which it then holds the beginning.
static bool quotes_packet(__u8 protocol, __u8 kind)
{
	if (protocol == IPPROTO_ICMP)
		return kind == 3 || kind == 4 || kind == 5 || kind == 11 || kind == 12;
	return protocol == IPPROTO_ICMPV6 && kind < 128;
}

#endif
