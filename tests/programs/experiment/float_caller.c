/* A program as it was compiled for the first interface of libtimekeeper: dilations of type float, leap() to the time
 * of another process. The declarations are those of that interface. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dilate(int pid, float dilation);
int dilate_all(int pid, float dilation);
int leap(int pid, int otherPid);
const char *timekeeper_error(void);

int main(int argc, char *argv[]) {
    if (argc != 4) return 2;
    int result = -2, pid = atoi(argv[2]);
    if (!strcmp(argv[1], "dilate")) result = dilate(pid, (float)atof(argv[3]));
    if (!strcmp(argv[1], "dilate_all")) result = dilate_all(pid, (float)atof(argv[3]));
    if (!strcmp(argv[1], "leap")) result = leap(pid, atoi(argv[3]));
    if (result) fprintf(stderr, "%s\n", timekeeper_error());
    return result ? 1 : 0;
}
