/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Finds the call that wrote a TCP segment. The segment may leave in that call or later, when there is room for it or an
 * acknowledgement has come. So each write is recorded with the sequence number of its first byte, and the socket knows the number
 * of the byte that it sends next. The process that reads the records compares that with the number in the segment itself: if they
 * differ, the segment is a retransmission.
 */

#ifndef LORENTZ_WRITES_H
#define LORENTZ_WRITES_H

#include "packet.h"

static __u64 peer_of(struct sock *sk)
{
	return (__u64)BPF_CORE_READ(sk, __sk_common.skc_hash) << 32 |
	       BPF_CORE_READ(sk, __sk_common.skc_portpair);
}

// Records that `call` is about to write to its socket.
static void begin_write(struct call *call)
{
	static const struct writes none;
	struct sock *sk = (struct sock *)call->sk;
	__u64 key = call->sk, peer = peer_of(sk);
	__u32 seq = BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	struct writes *entry = bpf_map_lookup_elem(&writes, &key);
	struct write *write;

	if (!entry) {
		bpf_map_update_elem(&writes, &key, &none, BPF_ANY);
		entry = bpf_map_lookup_elem(&writes, &key);
		if (!entry)
			return;
	}
	if (entry->peer != peer) {
		entry->peer = peer;
		entry->end = 0;
		entry->active = 0;
	}
	write = &entry->write[(entry->end - 1) & (WRITES - 1)];
	// The previous call has written nothing.
	if (!entry->end || write->seq != seq || entry->active) {
		write = &entry->write[entry->end & (WRITES - 1)];
		entry->end++;
	}
	write->entered = call->entered;
	write->seq = seq;
	write->done = 0;
	write->pid = call->pid;
	write->inner_pid = call->inner_pid;
	write->fd = call->fd;
	if (__sync_fetch_and_add(&entry->active, 1)) {
		write->entered = 0;
		entry->write[(entry->end - 2) & (WRITES - 1)].entered = 0;
	}
}

// Records the end of the bytes written: what follows may belong to a call that these programs do not see, such as
// sendfile.
static void end_write(struct call *call)
{
	struct sock *sk = (struct sock *)call->sk;
	__u64 key = call->sk;
	struct writes *entry = bpf_map_lookup_elem(&writes, &key);
	struct write *write;

	if (!entry || entry->peer != peer_of(sk) || !entry->active)
		return;
	write = &entry->write[(entry->end - 1) & (WRITES - 1)];
	write->until = BPF_CORE_READ((struct tcp_sock *)sk, write_seq);
	write->done = 1;
	__sync_fetch_and_add(&entry->active, -1);
}

// Finds the call that wrote the data of `skb`, and writes the call into `record`.
static bool claim_written(const struct sk_buff *skb, struct header *header, struct record *record)
{
	long carried = header->length - (header->flags & IPV6 ? 40 : 20);
	struct sock *sk = skb->sk;
	__u64 key = (__u64)sk;
	__u32 next, end;
	struct writes *entry;
	struct write *write;

	if (!sk)
		return 0;
	entry = bpf_map_lookup_elem(&writes, &key);
	if (!entry || entry->peer != peer_of(sk))
		return 0;
	carried -= BPF_CORE_READ((struct tcp_sock *)sk, tcp_header_len);
	// A segment without data is the kernel's own.
	if (carried <= 0)
		return 0;
	next = BPF_CORE_READ((struct tcp_sock *)sk, snd_nxt);
	end = entry->end;
	for (__u32 back = 1; back <= WRITES; back++) {
		if (back > end)
			return 0;
		write = &entry->write[(end - back) & (WRITES - 1)];
		if ((int)(next - write->seq) < 0)
			continue;
		if (!write->entered || bpf_ktime_get_ns() - write->entered > DELAY_NS)
			return 0;
		if (write->done && (int)(next - write->until) >= 0)
			return 0;
		record->call = write->entered;
		record->pid = write->pid;
		record->inner_pid = write->inner_pid;
		record->fd = write->fd;
		record->write_seq = next;
		record->flags |= BY_NUMBER;
		// The segment also has data that was written after the call.
		if (write->done && (int)(next + (__u32)carried - write->until) > 0)
			record->flags |= MISS(PARTIAL);
		return 1;
	}
	return 0;
}

#endif
