/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What is kept between events, and where.
 */

#ifndef LORENTZ_TABLES_H
#define LORENTZ_TABLES_H

#include "record.h"

// Calls.
enum { NONE, SEND, RECEIVE };

// Reasons of a miss.
#define MISS(reason) ((reason) << 4)
enum { UNREAD = 1, CHANGED, CROWDED, NO_CALL, PARTIAL, LOST };

// What does not change on the way, through NAT and forwarding.
struct mark {
	__u64 ip;
	__u64 payload;
};

struct header {
	struct mark mark;
	__u8 above[16];
	__u8 quoted[8];
	__u16 length;
	__u8 protocol;
	__u8 flags;
	bool quotes;
};

// A packet between call and outer device, by its sk_buff.
struct leaving {
	struct record record;
	struct mark mark;
	// None once it has been seen on the outer device.
	__u64 sk;
};

// Between outer device and namespace, by its sk_buff.
struct arrived {
	// None once it has been seen in the namespace.
	__u64 outer;
	struct mark mark;
};

// Between namespace and reader, by its data; done with once it is read.
struct delivered {
	struct record record;
	struct mark mark;
	__u64 read;
};

#define PER_CALL 64

// What a task does at the moment, in a watched namespace.
struct call {
	__u64 entered;
	__u64 sk;
	// Behind `fd`, as it was found last; `sk` is none where it is no socket of the network.
	__u64 file;
	__u64 socket;
	__u32 kind;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	// Packets read so far, or sent.
	__u32 count;
	bool tcp;
	bool looks_on;
	struct record read[PER_CALL];
};

#define WRITES 128

// A call that wrote to a socket of TCP: which byte was its first, and once it is done which is not its own any more.
struct write {
	// None where others wrote at the same time: whose bytes follow, nobody can tell.
	__u64 entered;
	__u32 seq;
	__u32 until;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	bool done;
};

// The latest calls that wrote to a socket: what TCP sends later than in the call is found by its number.
struct writes {
	// What the socket is joined to: its address may be another socket's by now.
	__u64 peer;
	__u32 end;
	// Calls that are in progress.
	__u32 active;
	struct write write[WRITES];
};

// A send call that returned before its packet left: it waits for the neighbour's address, as the first one does.
struct delayed {
	__u64 entered;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	__u32 count;
};

// Longer than any neighbour is asked for.
#define DELAY_NS 4000000000ull

#define QUEUE 128
// Packets that one event may tell of.
#define AT_ONCE 8

// What waits in a UDP socket: reading it tells nothing of the packet.
struct waiting {
	__u64 skb;
	__u64 head;
	__u64 outer;
	__u64 length;
};

struct queue {
	// Who notes moves the end, who takes the first; those that do the same take turns.
	__u32 noting;
	__u32 taking;
	__u32 first;
	__u32 end;
	// Somebody has read a packet that is not noted yet, and waits for it.
	__u32 awaited;
	__u32 unused;
	struct waiting waiting[QUEUE];
};

// What is counted in the kernel, for each namespace.
struct space {
	__u32 on;
	__u32 number;
	__u64 cookie;
	// Records for which the ring had no room, packets for which a map had none.
	__u64 dropped;
	__u64 full;
	// Packets that no send call sent: the kernel's own; TCP's, sent later than is remembered.
	__u64 unclaimed;
	// Packets that came, but not through the outer device.
	__u64 inside;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} spaces SEC(".maps");

// Namespaces by their number in records.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct space);
} numbered SEC(".maps");

#define PLACES 1024
#define OUTERS 8

// Every packet of the machine passes here, on each of its devices: what is none of ours is to cost little. A place for the
// watched namespaces whose cookies have the same rest, with the first one's number; and the outer devices, each with the
// namespace it is in.
__u64 place_cookies[PLACES];
__u32 place_numbers[PLACES];
__u32 outer_devices[OUTERS];
__u64 outer_cookies[OUTERS];

// Addresses are used again at once, so what is done with stays for the next packet there: to write over it costs less than to
// take it out and put another in. What is not used again is taken out by whoever reads the records.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct leaving);
} leaving SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct arrived);
} arrived SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct delivered);
} delivered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call);
} calls SEC(".maps");

// By socket.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct delayed);
} delays SEC(".maps");

// By socket.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct writes);
} writes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct queue);
} queues SEC(".maps");

// The datagram that each processor works on: it may be read by another before it is noted.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct waiting);
} in_hand SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

// Whether a namespace has a device that is a part of another (macvlan, ipvlan). Such a packet is not received once more in
// the namespace; whose it is shows when it is read.
bool shared_device;
// The device that was looked at for that last: mostly it is the same again.
__u64 seen_device;

#define NO_SPACE 0xffff
#define NO_DEVICE 0xffffffff

#define COUNT(space, what) __sync_fetch_and_add(&(space)->what, 1)

#endif
