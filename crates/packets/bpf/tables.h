/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * State between events: maps and global variables.
 */

#ifndef LORENTZ_TABLES_H
#define LORENTZ_TABLES_H

#include "record.h"

// Kinds of calls.
enum { NONE, SEND, RECEIVE };

// Reasons of a miss, in three bits of the flags.
#define MISS(reason) ((reason) << 4)
enum { UNREAD = 1, CHANGED, CROWDED, NO_CALL, PARTIAL, LOST };

// The fields that stay the same on the way, through NAT and forwarding.
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
	__u8 ttl;
	bool quotes;
};

// A packet between call and outer device, by the address of its sk_buff.
struct leaving {
	struct record record;
	struct mark mark;
	// 0 once the outer device has seen the packet.
	__u64 sk;
};

// A packet between outer device and namespace, by the address of its sk_buff.
struct arrived {
	// 0 once the namespace has seen the packet.
	__u64 outer;
	// Bytes from the IP header on.
	__u64 length;
	struct mark mark;
};

// A packet between namespace and reader, by the address of its data. The entry is done once the packet is read.
struct delivered {
	struct record record;
	struct mark mark;
	__u64 read;
};

#define PER_CALL 64

// The present call of a task in a watched namespace.
struct call {
	__u64 entered;
	__u64 sk;
	// The file of `fd` at the last lookup; `sk` is 0 if it is no network socket.
	__u64 file;
	__u64 socket;
	__u32 kind;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	// Number of packets read or sent so far.
	__u32 count;
	bool tcp;
	bool looks_on;
	struct record read[PER_CALL];
};

#define WRITES 128

// A call that wrote to a TCP socket. `seq` is the sequence number of its first byte. Once the call is done, `until`
// is that of the first byte after its own.
struct write {
	// 0 if other calls wrote at the same time: the order of their bytes is unknown.
	__u64 entered;
	__u32 seq;
	__u32 until;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	bool done;
};

// The latest calls that wrote to a socket. TCP may send data after the call has returned; its sequence number finds
// the call.
struct writes {
	// The peer of the socket: another socket may have its address by now.
	__u64 peer;
	__u32 end;
	// Number of calls in progress.
	__u32 active;
	struct write write[WRITES];
};

// A send call that returned before its packet left. The packet waits for the neighbour's address, as the first
// packet to a neighbour does.
struct delayed {
	__u64 entered;
	__u32 pid;
	__u32 inner_pid;
	__u32 fd;
	__u32 count;
};

// Longer than the kernel asks for a neighbour's address.
#define DELAY_NS 4000000000ull

#define QUEUE 128
// Greatest number of packets of one event.
#define AT_ONCE 8

// A packet that waits in a UDP socket: the read of a datagram does not say which packet it was.
struct waiting {
	__u64 skb;
	__u64 head;
	__u64 outer;
	__u64 length;
};

struct queue {
	// Locks. The program that adds packets moves `end`; the program that takes them moves `first`.
	__u32 noting;
	__u32 taking;
	__u32 first;
	__u32 end;
	// A reader has read a packet that is not in the queue yet, and waits for it.
	__u32 awaited;
	__u32 unused;
	struct waiting waiting[QUEUE];
};

// Counters of a namespace, and whether it is watched now.
struct space {
	__u32 on;
	__u32 number;
	__u64 cookie;
	// Records for which the ring buffer had no room; packets for which a map had none.
	__u64 dropped;
	__u64 full;
	// Packets that no send call sent: the kernel's own, or TCP data sent after its call was forgotten.
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

// Namespaces, by their number in records.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct space);
} numbered SEC(".maps");

#define PLACES 1024
#define OUTERS 8

// Every packet of the machine passes here, on each of its devices. A packet of no watched namespace must cost
// little. Each place stands for the watched namespaces whose cookies have the same remainder, and has the first
// one's number. Each outer device has the cookie of its namespace.
__u64 place_cookies[PLACES];
__u32 place_numbers[PLACES];
__u32 outer_devices[OUTERS];
__u64 outer_cookies[OUTERS];

// The kernel reuses addresses at once. Therefore an entry that is done stays for the next packet at its address:
// overwriting costs less than deleting and inserting. The process that reads the records deletes entries that are
// not reused.
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

// By the socket's address.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct delayed);
} delays SEC(".maps");

// By the socket's address.
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

// The datagram that each processor works on: another processor may read the packet before it is in the queue.
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

// Whether a namespace has a device that is part of another one (macvlan, ipvlan). Such a packet has no second
// reception in the namespace; its reader determines the namespace.
bool shared_device;
// The device of the last such check: mostly the next packet has the same.
__u64 seen_device;

#define NO_SPACE 0xffff
#define NO_DEVICE 0xffffffff

#define COUNT(space, what) __sync_fetch_and_add(&(space)->what, 1)

#endif
