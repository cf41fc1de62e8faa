/* Sleeps, a second at a time.
 * Ours, in the form of TimeKeeper's program of this name. */
#include <unistd.h>

int main(void) {
    for (;;) usleep(1000000);
}
