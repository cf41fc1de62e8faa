/*
 * vforks: the vfork child, for which the kernel makes its parent wait, ends when standard input is closed.
 */
#include "../lt.h"

int main(void)
{
	pid_t parent = getpid();
	if (vfork() == 0) {
		char c;
		lt_emit("vforked", ",\"parent\":%d", parent);
		while (read(0, &c, 1) > 0)
			;
		_exit(0);
	}
	lt_emit("goes on", NULL);
	return 0;
}
