/* In the shape of TimeKeeper's published code: commands to its module. Sends each argument, and prints what became of it. */
#include "TimeKeeper_functions.h"
#include "TimeKeeper_definitions.h"
#include "utility_functions.h"
#include <errno.h>
#include <linux/netlink.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* As the published headers declare them. */
int send_to_timekeeper(char *cmd);
int gettid();
int is_root();
int isModuleLoaded();
int fixDilation(double dilation);
int getpidfromname(char *lxcname);

_Static_assert(MAX_PAYLOAD == 1024 && NETLINK_USER == 31, "constants");
static const char LETTERS[] = {
    DILATE, DILATE_ALL, FREEZE_OR_UNFREEZE, FREEZE_OR_UNFREEZE_ALL, LEAP, ADD_TO_EXP_CBE, ADD_TO_EXP_CS,
    SYNC_AND_FREEZE, START_EXP, SET_INTERVAL, PROGRESS, FIX_TIMELINE, RESET, STOP_EXP, DEBUG_PROC_INFO,
    DEBUG_PROGRESS_EXP, DEBUG_CHILDREN_INFO, DEBUG_THREAD_INFO, DEBUG_SEND_MESSAGE, SET_CBE_EXP_TIMESLICE,
    SET_NETDEVICE_OWNER, 0,
};

/* The command that dilate() of the published code makes. */
static int dilate_by_command(int pid, double dilation) {
    char command[MAX_PAYLOAD];
    int dil = fixDilation(dilation);
    if (dil < 0) {
        sprintf(command, "%c,%d,1,%d", DILATE, pid, dil * -1);
    } else {
        sprintf(command, "%c,%d,%d", DILATE, pid, dil);
    }
    return send_to_timekeeper(command);
}

int main(int argc, char *argv[]) {
    if (strcmp(LETTERS, "ABCDEFGHIJKLMNOPQRSTU")) return 3;
    int answers = socket(PF_NETLINK, SOCK_RAW, NETLINK_USER);
    if (answers >= 0 || errno != EPROTONOSUPPORT) return 4;
    if (argc == 4 && !strcmp(argv[1], "dilate")) {
        return dilate_by_command(atoi(argv[2]), atof(argv[3])) ? 1 : 0;
    }
    for (int i = 1; i < argc; i++) {
        errno = 0;
        int result = send_to_timekeeper(argv[i]);
        puts(result ? strerror(errno) : "done");
    }
    return 0;
}
