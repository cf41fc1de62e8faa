/* exec_alarm SECONDS PROGRAM ARG...: alarm(SECONDS), then exec. */
#include "../lt.h"

int main(int argc, char **argv)
{
	if (argc < 3)
		return 96;
	lt_emit("armed", NULL);
	alarm((unsigned)atoi(argv[1]));
	execv(argv[2], argv + 2);
	lt_die("execv");
}
