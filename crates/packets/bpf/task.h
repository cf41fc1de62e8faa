/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The system call that a task is about to make, and its socket.
 */

#ifndef LORENTZ_TASK_H
#define LORENTZ_TASK_H

#include "tables.h"

// Finds the network socket of the call's descriptor, if it is one. Mostly it is that of the previous call.
static bool find_socket(struct task_struct *task, struct call *call)
{
	struct fdtable *table = task->files->fdt;
	struct file *file = 0;
	struct socket *socket;
	struct sock *sk;
	__u16 family;

	if (call->fd >= table->max_fds)
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + call->fd);
	if (!file)
		return 0;
	socket = BPF_CORE_READ(file, private_data);
	if (call->sk && call->file == (__u64)file && call->socket == (__u64)socket &&
	    call->sk == (__u64)BPF_CORE_READ(socket, sk))
		return 1;
	call->sk = 0;
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	sk = BPF_CORE_READ(socket, sk);
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6 && family != AF_PACKET)
		return 0;
	call->file = (__u64)file;
	call->socket = (__u64)socket;
	call->sk = (__u64)sk;
	// A raw socket may have the protocol too. It has no sequence numbers.
	call->tcp = BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP && BPF_CORE_READ(sk, sk_type) == SOCK_STREAM;
	call->looks_on = family == AF_PACKET;
	return 1;
}

static __u32 inner_pid(struct task_struct *task)
{
	struct pid *pid = task->group_leader->thread_pid;
	__u64 at = (__u64)pid + bpf_core_field_offset(struct pid, numbers);
	__u32 level = BPF_CORE_READ(pid, level), number = 0;

	at += (__u64)level * bpf_core_type_size(struct upid);
	bpf_probe_read_kernel(&number, sizeof(number), (void *)at);
	return number;
}

static int kind_of(long number)
{
	switch (number) {
	case 1: // write
	case 20: // writev
	case 44: // sendto
	case 46: // sendmsg
	case 307: // sendmmsg
		return SEND;
	case 0: // read
	case 19: // readv
	case 45: // recvfrom
	case 47: // recvmsg
	case 299: // recvmmsg
		return RECEIVE;
	default:
		return NONE;
	}
}

#endif
