/* Shows the virtual time of a process or of a container.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <TimeKeeper_functions.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int usage(const char *name) {
    fprintf(stderr, "Usage: %s [-p pid] [-n name]\n", name);
    return -1;
}

int main(int argc, char *argv[]) {
    int opt, pid = 0;
    char *name = NULL;
    struct timeval now;
    struct tm local;
    while ((opt = getopt(argc, argv, "pnh")) != -1) {
        switch (opt) {
        case 'p':
            pid = atoi(argv[optind]);
            break;
        case 'n':
            name = argv[optind];
            break;
        default:
            return usage(argv[0]);
        }
    }
    if (optind >= argc) return usage(argv[0]);
    if (pid != 0)
        gettimepid(pid, &now, NULL);
    else
        gettimename(name, &now, NULL);
    localtime_r(&now.tv_sec, &local);
    printf("%d localtime: %d:%02d:%02d %ld\n", pid, local.tm_hour, local.tm_min, local.tm_sec,
           (long)now.tv_usec);
    return 0;
}
