/*
 * For LD_PRELOAD: ns-3's TapBridge has a helper open its tap device, and Debian 12's looks for it where the package was
 * built. What is not there is looked for where the package has put it.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLACE "/usr/libexec/ns3"
enum { MOST = 32 };

int execlp(const char *file, const char *first, ...)
{
	const char *words[MOST + 1] = { first };
	const char *name = strrchr(file, '/');
	char there[256];
	va_list rest;
	int count = 0;

	va_start(rest, first);
	while (words[count] && count < MOST - 1)
		words[++count] = va_arg(rest, const char *);
	va_end(rest);
	if (name && strstr(name, "tap-creator") && access(file, X_OK)) {
		snprintf(there, sizeof there, PLACE "%s", name);
		file = there;
	}
	return execvp(file, (char *const *)words);
}
