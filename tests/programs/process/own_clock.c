/*
 * own_clock: tries to write to the page of its clock, for each mapping of the clock that is for reading only: by mprotect, by
 * the file's path, and by /proc. Prints {"ev":"page","mprotect":ERR,"path":ERR,"map_files":ERR} for each, 0 for success.
 */
#include "../lt.h"
#include <sys/mman.h>

static int open_error(const char *path)
{
	int fd = open(path, O_RDWR);
	return fd < 0 ? errno : 0;
}

int main(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], rights[8], path[4096], again[128];
	unsigned long begin, end;
	LT_CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %4095s", &begin, &end, rights, path) != 4)
			continue;
		size_t length = strlen(path);
		if (strcmp(rights, "r--s") || length < 6 || strcmp(path + length - 6, "/clock"))
			continue;
		snprintf(again, sizeof again, "/proc/self/map_files/%lx-%lx", begin, end);
		int refused = mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE) ? errno : 0;
		lt_emit("page", ",\"mprotect\":%d,\"path\":%d,\"map_files\":%d", refused, open_error(path),
			open_error(again));
	}
	fclose(maps);
	return 0;
}
