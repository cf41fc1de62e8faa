/*
 * The name of timekeeper.h in TimeKeeper's published code, with that file's constants.
 */
#ifndef TIMEKEEPER_FUNCTIONS_H
#define TIMEKEEPER_FUNCTIONS_H

#include "timekeeper.h"

/* Bytes of a netlink message of TimeKeeper's module at most. */
#define MAX_PAYLOAD 1024

/* The netlink protocol by which the module answers progress(). The kernel has no such protocol without the
 * module: socket(AF_NETLINK, SOCK_RAW, NETLINK_USER) fails with EPROTONOSUPPORT. progress(), and
 * send_to_timekeeper() with the command PROGRESS, return when all processes have arrived. */
#define NETLINK_USER 31

#endif
