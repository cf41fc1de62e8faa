/*
 * For LD_PRELOAD: ns-3's TapBridge has a helper that opens its tap device. Debian 12's TapBridge looks for it in the
 * package's build directory. This library redirects such a path to the place where the package installs the helper.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLACE "/usr/libexec/ns3"
enum { MAX_WORDS = 32 };

int execlp(const char *file, const char *first, ...)
{
	const char *words[MAX_WORDS + 1] = { first };
	const char *name = strrchr(file, '/');
	char there[256];
	va_list rest;
	int count = 0;

	va_start(rest, first);
	while (words[count] && count < MAX_WORDS - 1)
		words[++count] = va_arg(rest, const char *);
	va_end(rest);
	if (name && strstr(name, "tap-creator") && access(file, X_OK)) {
		snprintf(there, sizeof there, PLACE "%s", name);
		file = there;
	}
	return execvp(file, (char *const *)words);
}
