/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Finds the datagram that a read has taken. The read of a small datagram passes no event that names the packet. So these programs
 * keep the order of each socket's queue: the packet read is the one before the present front.
 */

#ifndef LORENTZ_DATAGRAMS_H
#define LORENTZ_DATAGRAMS_H

#include "packet.h"

// Length of the UDP header, bytes.
#define UDP_HEADER 8

static struct waiting *hand(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&in_hand, &only);
}

static void take_in_hand(const struct sk_buff *skb, struct header *header, __u64 outer)
{
	struct waiting *hold = hand();

	if (!hold || header->protocol != IPPROTO_UDP)
		return;
	hold->skb = (__u64)skb;
	hold->head = (__u64)skb->head;
	hold->outer = outer;
	hold->length = header->length - (header->flags & IPV6 ? 40 : 20) - UDP_HEADER;
}

// Takes a spin lock that is held for some instructions only. Without it after 256 tries, the caller leaves a packet
// unmatched.
static bool lock(__u32 *taken)
{
	for (int i = 0; i < 256; i++)
		if (!__sync_lock_test_and_set(taken, 1))
			return 1;
	return 0;
}

static void unlock(__u32 *taken)
{
	__sync_lock_test_and_set(taken, 0);
}

static bool is_udp(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP && sk->sk_type == SOCK_DGRAM;
}

static void note(struct queue *queue, __u32 at, struct sk_buff *skb)
{
	struct waiting *waiting = &queue->waiting[at & (QUEUE - 1)];
	__u64 head = (__u64)BPF_CORE_READ(skb, head);
	struct delivered *found = bpf_map_lookup_elem(&delivered, &head);

	waiting->skb = (__u64)skb;
	waiting->head = head;
	waiting->length = BPF_CORE_READ(skb, len);
	waiting->outer = found ? found->record.outer : 0;
}

// Adds the new packets at the end of the socket's queue: several may have come at once.
static void note_new(struct queue *queue, struct sock *sk, struct waiting *hold)
{
	__u64 last = queue->waiting[(queue->end - 1) & (QUEUE - 1)].skb;
	__u32 length = BPF_CORE_READ(sk, sk_receive_queue.qlen);
	struct sk_buff *skb = BPF_CORE_READ(sk, sk_receive_queue.prev);
	struct sk_buff *found[AT_ONCE], *newest = skb;
	__u32 end = queue->end;

	if (queue->end == queue->first)
		last = 0;
	for (int i = 0; i < AT_ONCE; i++) {
		found[i] = 0;
		if (i >= length || (__u64)skb == last)
			continue;
		found[i] = skb;
		skb = BPF_CORE_READ(skb, prev);
	}
	for (int i = AT_ONCE - 1; i >= 0; i--)
		if (found[i] && end - queue->first < QUEUE)
			note(queue, end++, found[i]);
	// Race: a reader takes the packet before it is added here. The entry would then stand for the next packet.
	// Therefore add it only if it is still queued, or if a reader waits for it.
	if (end != queue->end && (newest == BPF_CORE_READ(sk, sk_receive_queue.prev) ||
				  newest == BPF_CORE_READ((struct udp_sock *)sk, reader_queue.prev))) {
		queue->end = end;
	} else if (queue->awaited && hold && hold->skb) {
		queue->waiting[queue->end & (QUEUE - 1)] = *hold;
		queue->end++;
	}
}

// Waits for the program that adds the packet just read: it may be a moment behind.
static void await(struct queue *queue)
{
	if (queue->first != queue->end)
		return;
	queue->awaited = 1;
	for (int i = 0; i < 2048; i++) {
		barrier();
		if (queue->first != *(volatile __u32 *)&queue->end)
			break;
	}
	if (lock(&queue->noting)) {
		queue->awaited = 0;
		unlock(&queue->noting);
	}
}

// Returns the packet in front, if any: in the queue of the readers, or in that of the network.
static struct sk_buff *front(struct sock *sk)
{
	struct udp_sock *udp = (struct udp_sock *)sk;

	if (BPF_CORE_READ(udp, reader_queue.qlen))
		return BPF_CORE_READ(udp, reader_queue.next);
	if (BPF_CORE_READ(sk, sk_receive_queue.qlen))
		return BPF_CORE_READ(sk, sk_receive_queue.next);
	return 0;
}

// Whether `waiting` is still in front of the queue, and not a later packet at its address.
static bool still_there(struct waiting *waiting, struct sk_buff *front)
{
	struct delivered *found;
	__u64 head;

	if (waiting->skb != (__u64)front)
		return 0;
	head = (__u64)BPF_CORE_READ(front, head);
	found = bpf_map_lookup_elem(&delivered, &head);
	return waiting->head == head && found && found->record.outer == waiting->outer;
}

// Moves `first` on to the packet that is in front now.
static void find(struct queue *queue, struct sk_buff *front, __u32 end)
{
	for (int i = 0; i < QUEUE; i++) {
		if (queue->first == end || queue->waiting[queue->first & (QUEUE - 1)].skb == (__u64)front)
			break;
		queue->first++;
	}
}

// Returns the packet that has just been taken out of the queue, if it is certain which one that is: the one before
// the present front.
static bool take(struct queue *queue, struct sock *sk, long length, struct waiting *taken)
{
	__u32 end = queue->end;
	struct sk_buff *next = front(sk);
	struct waiting *second;
	bool certain;

	if (queue->first == end)
		return 0;
	*taken = queue->waiting[queue->first & (QUEUE - 1)];
	second = &queue->waiting[(queue->first + 1) & (QUEUE - 1)];
	certain = taken->length == length && !still_there(taken, next);
	if (end - queue->first > 1)
		certain = certain && second->skb == (__u64)next;
	if (certain)
		queue->first++;
	else
		find(queue, next, end);
	return certain;
}

#endif
