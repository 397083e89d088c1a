/* Calls the functions of a library that stdin names, one a line, with buffers for six outputs, or with NULL for each if the name follows a
 * "-", and prints each result. At last it prints NVML's texts of the return codes, if the library has them. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int (*function)(void *, void *, void *, void *, void *, void *);

static char room[6][4096], none[sizeof room];

static void call(void *library, char *line)
{
	int empty = *line == '-';
	function f = (function)dlsym(library, line + empty);
	if (!f)
		return;
	memset(room, 0, sizeof room);
	int code = empty ? f(0, 0, 0, 0, 0, 0) : f(room[0], room[1], room[2], room[3], room[4], room[5]);
	printf("%s: %d%s\n", line, code, memcmp(room, none, sizeof room) ? ", with an output" : "");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char line[256];
	void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		call(library, line);
	}
	const char *(*text)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
	for (int code = 0; text && code < 1000; code += code == 30 ? 969 : 1)
		printf("%d: %s\n", code, text(code));
	return 0;
}
