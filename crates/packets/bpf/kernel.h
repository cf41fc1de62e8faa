/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The parts of the kernel's own structures that these programs use. The loader finds the real offset of each member (CO-RE).
 */

#ifndef LORENTZ_KERNEL_H
#define LORENTZ_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef _Bool bool;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct rtnl_link_ops {
	const char *kind;
};

struct net_device {
	unsigned int ifindex;
	unsigned int flags;
	possible_net_t nd_net;
	struct rtnl_link_ops *rtnl_link_ops;
};

struct sock_common {
	__u32 skc_portpair;
	unsigned int skc_hash;
	unsigned short skc_family;
	possible_net_t skc_net;
};

struct sk_buff;

struct sk_buff_head {
	struct sk_buff *next;
	struct sk_buff *prev;
	__u32 qlen;
};

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	__u16 sk_protocol;
	struct sk_buff_head sk_receive_queue;
};

struct udp_sock {
	struct sk_buff_head reader_queue;
};

struct tcp_sock {
	__u16 tcp_header_len;
	__u32 snd_nxt;
	__u32 write_seq;
};

struct sk_buff {
	struct sk_buff *prev;
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int data_len;
	__u16 network_header;
	__u16 inner_network_header;
	unsigned int tail;
	unsigned char *head;
	unsigned char *data;
};

struct nsproxy {
	struct net *net_ns;
};

struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct nsproxy *nsproxy;
	struct files_struct *files;
};

struct socket {
	struct sock *sk;
};

struct pt_regs {
	unsigned long orig_ax;
	unsigned long di;
	unsigned long cs;
};

#pragma clang attribute pop

#define IFF_LOOPBACK 0x8
#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_INET 2
#define AF_INET6 10
#define AF_PACKET 17
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_ICMP 1
#define IPPROTO_ICMPV6 58
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000
/* The code segment of 32-bit programs, whose calls have other numbers. */
#define USER32_CS 0x23

#endif
