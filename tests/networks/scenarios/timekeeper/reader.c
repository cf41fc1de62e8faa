/* Runs the commands that come through the pipe /tmp/HOSTNAME, with their output in /tmp/HOSTNAME.output, until "exit".
 * Ours, in the form of TimeKeeper's program of this name. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BUF 1024

static void run(const char *words, const char *host) {
    char command[3 * MAX_BUF];
    snprintf(command, sizeof command, "%s >> /tmp/%s.output", words, host);
    exit(system(command) == -1);
}

int main(void) {
    char host[MAX_BUF], path[MAX_BUF + 8], words[MAX_BUF];
    gethostname(host, sizeof host);
    snprintf(path, sizeof path, "/tmp/%s", host);
    mkfifo(path, 0666);
    struct pollfd pipe = {.fd = open(path, O_RDWR | O_NONBLOCK), .events = POLLIN};
    while (poll(&pipe, 1, -1) > 0) {
        ssize_t length = read(pipe.fd, words, sizeof words - 1);
        if (length <= 0) continue;
        words[length] = '\0';
        words[strcspn(words, "\n")] = '\0';
        if (strcmp(words, "exit") == 0) break;
        if (fork() == 0) run(words, host);
    }
    close(pipe.fd);
    return 0;
}
