// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
//
// Follows each packet of the watched network namespaces between a system call and the outer device.
//
// Egress: entry of a send call, first device of the namespace, start of transmission on the outer device. Ingress:
// reception on the outer device, reception in the namespace, exit of the receive call that copied it.
//
// Between devices, the address of its sk_buff identifies a packet. From there to the socket the sk_buff may have
// been cloned; there, the address of its data identifies it. The kernel reuses addresses at once, so a lost event
// would join two packets. Therefore each entry has a mark, made of the fields that no forwarding changes. The marks
// of both ends must agree; if not, the packet counts as a miss.
//
// The programs parse nothing above IP: they pass its first bytes on to the process that reads the records.

#include "datagrams.h"
#include "packet.h"
#include "task.h"
#include "tunnels.h"
#include "writes.h"

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long number)
{
	int kind = kind_of(number);
	struct task_struct *task;
	struct call *call;
	__u32 pid;

	if (!kind || regs->cs == USER32_CS)
		return 0;
	task = bpf_get_current_task_btf();
	if (!watched(task->nsproxy->net_ns->net_cookie))
		return 0;
	call = bpf_task_storage_get(&calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!call)
		return 0;
	if (kind == SEND)
		call->entered = bpf_ktime_get_ns();
	call->fd = regs->di;
	call->count = 0;
	pid = bpf_get_current_pid_tgid() >> 32;
	if (call->pid != pid) {
		call->pid = pid;
		call->inner_pid = inner_pid(task);
	}
	call->kind = NONE;
	if (!find_socket(task, call)) {
		call->sk = 0;
		return 0;
	}
	call->kind = kind;
	if (kind == SEND && call->tcp)
		begin_write(call);
	return 0;
}

// Remembers a send call whose packet has not left yet.
static void delay(struct call *call)
{
	struct delayed new = {
		.entered = call->entered,
		.pid = call->pid,
		.inner_pid = call->inner_pid,
		.fd = call->fd,
		.count = 1,
	}, *old;
	__u64 sk = call->sk;

	old = bpf_map_lookup_elem(&delays, &sk);
	if (old && new.entered - old->entered < DELAY_NS)
		new.count += old->count;
	bpf_map_update_elem(&delays, &sk, &new, BPF_ANY);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long result)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct space *space;
	struct call *call;
	__u32 kind;
	__u64 now;

	// Every system call of the machine passes here.
	if (!kind_of(regs->orig_ax))
		return 0;
	call = bpf_task_storage_get(&calls, task, 0, 0);
	if (!call || !call->kind)
		return 0;
	kind = call->kind;
	call->kind = NONE;
	if (kind == SEND && call->tcp)
		end_write(call);
	else if (kind == SEND && !call->count && result >= 0 && call->sk)
		delay(call);
	if (kind != RECEIVE || !call->count)
		return 0;
	now = bpf_ktime_get_ns();
	space = watched(task->nsproxy->net_ns->net_cookie);
	if (!space)
		return 0;
	for (__u32 i = 0; i < PER_CALL; i++) {
		if (i >= call->count)
			break;
		call->read[i].call = now;
		tell(space, &call->read[i]);
	}
	return 0;
}

// Finds the call that sent `skb`, and writes the call into `record`.
static bool claim(const struct sk_buff *skb, struct header *header, struct record *record)
{
	struct sock *owner = skb->sk;
	__u64 sk = (__u64)owner;
	struct delayed *delayed;
	struct call *call;

	if (!owner)
		return 0;
	if (header->protocol == IPPROTO_TCP) {
		if (owner->sk_type == SOCK_STREAM)
			return claim_written(skb, header, record);
		record->flags |= BY_RAW;
	}
	call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, 0);
	if (call && call->kind == SEND && call->sk == sk) {
		call->count++;
		record->call = call->entered;
		record->pid = call->pid;
		record->inner_pid = call->inner_pid;
		record->fd = call->fd;
		return 1;
	}
	delayed = bpf_map_lookup_elem(&delays, &sk);
	// If several calls wait, this packet may belong to any of them.
	if (!delayed || delayed->count != 1 || bpf_ktime_get_ns() - delayed->entered > DELAY_NS)
		return 0;
	record->call = delayed->entered;
	record->pid = delayed->pid;
	record->inner_pid = delayed->inner_pid;
	record->fd = delayed->fd;
	bpf_map_delete_elem(&delays, &sk);
	return 1;
}

// Whether `skb` is the packet of `old`. The comparison includes the bytes above IP, which nothing changes inside
// the namespace: another packet may have the same length and payload.
static bool same_inside(const struct leaving *old, const struct sk_buff *skb, struct header *header)
{
	return old->sk == (__u64)skb->sk && same(&old->mark, &header->mark) &&
	       *(__u64 *)old->record.above == *(__u64 *)header->above;
}

// Called on each device of the namespace on the way out; acts on the first one.
static void leave(struct space *space, const struct sk_buff *skb)
{
	static const struct leaving none;
	__u64 key = (__u64)skb;
	struct leaving *old;
	struct record record = {};
	struct header header;

	if (!read_header(skb, skb->network_header, &header))
		return;
	old = bpf_map_lookup_elem(&leaving, &key);
	// The next device in the same namespace: nothing to do.
	if (old && same_inside(old, skb, &header))
		return;
	if (!claim(skb, &header, &record)) {
		COUNT(space, unclaimed);
		return;
	}
	if (old && old->sk)
		tell_miss(space, &old->record, LOST);
	if (!old) {
		bpf_map_update_elem(&leaving, &key, &none, BPF_ANY);
		old = bpf_map_lookup_elem(&leaving, &key);
	}
	if (!old) {
		COUNT(space, full);
		return;
	}
	fill(&record, space->number, &header);
	if (!(record.flags & BY_NUMBER))
		record.write_seq = header.ttl;
	// The outer device overwrites this time with its own.
	record.outer = bpf_ktime_get_ns();
	old->record = record;
	old->mark = header.mark;
	old->sk = (__u64)skb->sk;
}

// Handles a packet to another program of the same namespace: counts it for its call, and does not follow it.
static void stay(const struct sk_buff *skb)
{
	struct call *call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, 0);

	if (call && call->kind == SEND && call->sk == (__u64)skb->sk)
		call->count++;
}

static void look_at_kind(struct net_device *dev)
{
	__u64 device = dev->nd_net.net->net_cookie << 16 | (__u16)dev->ifindex;
	char kind[8] = {};

	if (shared_device || seen_device == device)
		return;
	seen_device = device;
	bpf_probe_read_kernel(kind, sizeof(kind) - 1, BPF_CORE_READ(dev, rtnl_link_ops, kind));
	if (!bpf_strncmp(kind, 6, "macvlan") || !bpf_strncmp(kind, 6, "ipvlan"))
		shared_device = 1;
}

SEC("tp_btf/net_dev_queue")
int BPF_PROG(on_queue, struct sk_buff *skb)
{
	struct net_device *dev = skb->dev;
	struct space *space = watched(dev->nd_net.net->net_cookie);

	if (!space)
		return 0;
	if (dev->flags & IFF_LOOPBACK) {
		stay(skb);
		return 0;
	}
	look_at_kind(dev);
	leave(space, skb);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(on_transmit, const struct sk_buff *skb, const struct net_device *dev)
{
	__u64 key = (__u64)skb, now;
	struct leaving *found;
	struct space *space;

	if (!is_outer(dev))
		return 0;
	found = bpf_map_lookup_elem(&leaving, &key);
	if (!found || !found->sk)
		return 0;
	now = bpf_ktime_get_ns();
	space = space_of(found->record.space);
	if (space) {
		found->record.device = span(found->record.outer, now);
		found->record.outer = now;
		if (carries(skb, &found->mark))
			tell(space, &found->record);
		else
			tell_miss(space, &found->record, CHANGED);
	}
	found->sk = 0;
	return 0;
}

static void forget(struct delivered *old)
{
	struct space *space = old->read ? 0 : space_of(old->record.space);

	if (space)
		tell_miss(space, &old->record, UNREAD);
	old->read = 1;
	// No packet has this mark.
	old->mark.ip = 0;
}

// From here on the address of its data identifies the packet. Without `space`, the packet's reader determines the
// namespace.
static void deliver(struct space *space, const struct sk_buff *skb, struct header *header, __u64 outer,
		    __u64 now)
{
	__u64 head = (__u64)skb->head;
	static const struct delivered none = { .read = 1 };
	struct delivered *found;
	struct record record = { .flags = INGRESS };

	found = bpf_map_lookup_elem(&delivered, &head);
	if (!found) {
		bpf_map_update_elem(&delivered, &head, &none, BPF_ANY);
		found = bpf_map_lookup_elem(&delivered, &head);
	}
	if (!found) {
		if (space)
			COUNT(space, full);
		return;
	}
	forget(found);
	fill(&record, space ? space->number : NO_SPACE, header);
	record.outer = outer;
	record.device = space ? span(outer, now) : NO_DEVICE;
	// The receive call overwrites this time with its own.
	record.call = now;
	found->record = record;
	found->mark = header->mark;
	found->read = 0;
	take_in_hand(skb, header, outer);
}

static void arrive_inside(struct space *space, const struct sk_buff *skb, struct header *header, __u64 now)
{
	__u64 key = (__u64)skb, head = (__u64)skb->head;
	struct arrived *found = bpf_map_lookup_elem(&arrived, &key);
	struct delivered *old;

	if (found && found->outer && same(&found->mark, &header->mark)) {
		deliver(space, skb, header, found->outer, now);
		found->outer = 0;
		return;
	}
	// The next device in the same namespace, or a new packet at the address of another.
	old = bpf_map_lookup_elem(&delivered, &head);
	if (old && same(&old->mark, &header->mark))
		return;
	COUNT(space, inside);
	if (old)
		forget(old);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(on_receive, struct sk_buff *skb)
{
	struct net_device *dev = skb->dev;
	struct space *space = watched(dev->nd_net.net->net_cookie);
	bool outer = is_outer(dev);
	struct arrived new = {}, *old;
	struct header header;
	__u64 key = (__u64)skb;

	if (!outer && (!space || dev->flags & IFF_LOOPBACK)) {
		if (!space && is_tunnel(dev))
			unwrap(skb);
		return 0;
	}
	new.outer = bpf_ktime_get_ns();
	if (!read_header(skb, data_at(skb), &header))
		return 0;
	if (!outer) {
		arrive_inside(space, skb, &header, new.outer);
		return 0;
	}
	new.mark = header.mark;
	new.length = header.length;
	old = bpf_map_lookup_elem(&arrived, &key);
	if (old)
		*old = new;
	else
		bpf_map_update_elem(&arrived, &key, &new, BPF_ANY);
	if (space)
		arrive_inside(space, skb, &header, new.outer);
	else if (shared_device)
		deliver(0, skb, &header, new.outer, new.outer);
	return 0;
}

// Handles the read of the packet whose data is at `head` by a call.
static void read_by(struct call *call, struct delivered *found, bool whole)
{
	struct record *record;
	struct space *space;
	__u32 at = call->count;

	if (found->record.space == NO_SPACE) {
		space = watched(bpf_get_current_task_btf()->nsproxy->net_ns->net_cookie);
		if (!space)
			return;
		found->record.space = space->number;
	}

	if (at >= PER_CALL || call->kind != RECEIVE) {
		space = space_of(found->record.space);
		if (space && !found->read)
			tell_miss(space, &found->record, at >= PER_CALL ? CROWDED : NO_CALL);
		found->read = 1;
		return;
	}
	record = &call->read[at];
	*record = found->record;
	record->pid = call->pid;
	record->inner_pid = call->inner_pid;
	record->fd = call->fd;
	if (record->protocol == IPPROTO_TCP && !call->tcp)
		record->flags |= BY_RAW;
	if (found->read)
		record->flags |= AGAIN;
	else if (!whole)
		record->flags |= MISS(PARTIAL);
	found->read = 1;
	call->count = at + 1;
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(on_copy, const struct sk_buff *skb, int length)
{
	struct call *call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, 0);
	__u64 head = (__u64)skb->head;
	struct delivered *found;
	struct header header;

	// A packet socket only observes; the packet is not for it.
	if (!call || call->looks_on)
		return 0;
	found = bpf_map_lookup_elem(&delivered, &head);
	if (!found || !read_header(skb, skb->network_header, &header))
		return 0;
	if (!same(&found->mark, &header.mark))
		return 0;
	read_by(call, found, (__u32)length >= skb->len);
	return 0;
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(on_ready, struct sock *sk)
{
	struct waiting *hold;
	struct queue *queue;

	if (!is_udp(sk) || !watched(sk->__sk_common.skc_net.net->net_cookie))
		return 0;
	queue = bpf_sk_storage_get(&queues, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!queue || !lock(&queue->noting))
		return 0;
	hold = hand();
	note_new(queue, sk, hold);
	if (hold)
		hold->skb = 0;
	unlock(&queue->noting);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_received, struct sock *sk, int length, int flags)
{
	struct waiting taken = {};
	struct delivered *found;
	struct queue *queue;
	struct call *call;
	bool certain = 0;

	if (length < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_udp(sk))
		return 0;
	queue = bpf_sk_storage_get(&queues, sk, 0, 0);
	if (!queue)
		return 0;
	if (lock(&queue->taking)) {
		await(queue);
		certain = take(queue, sk, length, &taken);
		unlock(&queue->taking);
	}
	if (!certain || !taken.outer)
		return 0;
	found = bpf_map_lookup_elem(&delivered, &taken.head);
	// The packet was copied whole a moment ago, or another packet has its address now.
	if (!found || found->read || found->record.outer != taken.outer)
		return 0;
	call = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), 0, 0);
	if (call)
		read_by(call, found, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
