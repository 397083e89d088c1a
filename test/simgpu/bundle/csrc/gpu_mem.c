/* gpu-mem [MiB]: allocates this amount on the first device, prints the result and holds it until stdin ends; it exits with 1 after an error
 * code of CUDA. Each byte on stdin allocates 1 MiB more, f causes a fatal fault. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <dlfcn.h>

static void *library;

static int report(const char *call, int code)
{
	if (code)
		printf("%s: %d\n", call, code);
	fflush(stdout);
	return code;
}

/* Calls a function of libcuda with up to three arguments. */
static int call(const char *name, intptr_t a, intptr_t b, intptr_t c)
{
	int (*function)(intptr_t, intptr_t, intptr_t) = (int (*)(intptr_t, intptr_t, intptr_t))dlsym(library, name);
	return report(name, function ? function(a, b, c) : -1);
}

static int hold(long mebibytes)
{
	int multiprocessors = 0;
	size_t unused = 0, total = 0;
	uint64_t address;
	void *context;
	if (call("cuInit", 0, 0, 0) || call("cuDeviceGetAttribute", (intptr_t)&multiprocessors, 16, 0) ||
	    call("cuCtxCreate_v2", (intptr_t)&context, 0, 0) || call("cuMemGetInfo_v2", (intptr_t)&unused, (intptr_t)&total, 0))
		return 1;
	printf("multiprocessors %d, free %zu MiB, total %zu MiB\n", multiprocessors, unused >> 20, total >> 20);
	if (mebibytes && call("cuMemAlloc_v2", (intptr_t)&address, (intptr_t)mebibytes << 20, 0))
		return 1;
	printf("holding %ld MiB\n", mebibytes);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	char byte;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (hold(argc > 1 ? atol(argv[1]) : 0))
		return 1;
	while (read(0, &byte, 1) == 1)
		if (byte == 'f')
			call("simgpu_illegal_address", 0, 0, 0);
		else if (call("cuMemAlloc_v2", (intptr_t)&(uint64_t){ 0 }, 1 << 20, 0) == 0) {
			printf("allocated\n");
			fflush(stdout);
		}
	return 0;
}
