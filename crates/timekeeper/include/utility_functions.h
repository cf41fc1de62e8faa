/*
 * Functions that TimeKeeper's published programs take from the file of this name.
 */
#ifndef TIMEKEEPER_UTILITY_FUNCTIONS_H
#define TIMEKEEPER_UTILITY_FUNCTIONS_H

#include "timekeeper.h"

#ifdef __cplusplus
extern "C" {
#else
/* The C library declares it for _GNU_SOURCE only, and C++ has that. */
int gettid(void);
#endif

/* Returns 1 for root, else 0. */
int is_root(void);

/* Returns 1: the functions of timekeeper.h need no module. */
int isModuleLoaded(void);

/* Returns a TDF in thousandths, negative for the inverse; 0 for 1 and for none, -1 for one below 0. */
int fixDilation(double dilation);

/* Executes a command in the text that TimeKeeper's module takes: a letter of TimeKeeper_definitions.h and
 * numbers, such as "E,17,1000". Returns when the command has taken effect: 0, or -1 as the other functions. */
int send_to_timekeeper(char *cmd);

#ifdef __cplusplus
}
#endif

#endif
