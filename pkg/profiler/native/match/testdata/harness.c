// Answers prism_match for many cases: reads records from standard input, and writes "0" or "1" for each.
//
//	record: size of the file (4 bytes, little endian), the file; number of processes (4 bytes); for each of them the number of arguments
//	(4 bytes), and that many arguments and the executable, each as its size (4 bytes) and its bytes
//
// Files and texts are copied to memory of exactly their size, so that a sanitizer sees every read outside of them. With the argument
// "bench N", the first process of the first record is matched N times, and the nanoseconds of one match are written.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../match.h"

static int number(unsigned *n) {
	unsigned char b[4];
	if (fread(b, 1, 4, stdin) != 4) return 0;
	*n = prism_u32_at(b);
	return 1;
}

// Reads a size and that many bytes; with is the number of zeros to append.
static char *bytes(unsigned *size, unsigned with) {
	if (!number(size)) exit(2);
	char *b = calloc(1, *size + with ? *size + with : 1);
	if (!b || fread(b, 1, *size, stdin) != *size) exit(2);
	return b;
}

static void bench(const void *file, unsigned size, int argc, char **argv, const char *exe, long times) {
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	int selected = 0;
	for (long i = 0; i < times; i++) {
		selected += prism_match(file, size, argc, argv, exe);
		__asm__ volatile("" ::: "memory");
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
	printf("%.0f %d\n", ns / (double)times, selected != 0);
	exit(0);
}

int main(int argc, char **argv) {
	for (unsigned size; number(&size);) {
		char *file = malloc(size ? size : 1);
		if (!file || fread(file, 1, size, stdin) != size) return 2;
		unsigned processes, arguments, length;
		if (!number(&processes)) return 2;
		while (processes--) {
			if (!number(&arguments)) return 2;
			char **texts = calloc(arguments + 1, sizeof *texts);
			if (!texts) return 2;
			for (unsigned i = 0; i < arguments; i++) texts[i] = bytes(&length, 1);
			char *exe = bytes(&length, 1);
			if (argc == 3 && !strcmp(argv[1], "bench")) bench(file, size, (int)arguments, texts, exe, atol(argv[2]));
			putchar('0' + prism_match(file, size, (int)arguments, texts, exe));
			for (unsigned i = 0; i < arguments; i++) free(texts[i]);
			free(texts);
			free(exe);
		}
		free(file);
	}
	return fflush(stdout) ? 2 : 0;
}
