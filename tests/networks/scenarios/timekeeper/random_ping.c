/* Has ping send to one neighbour after the other, chosen at random.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    char command[100];
    srand(time(NULL));
    for (;;) {
        snprintf(command, sizeof command, "ping -c5 10.0.0.%d", rand() % 101 + 10);
        if (system(command) == -1) return 1;
        sleep(1);
    }
}
