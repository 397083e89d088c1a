/* kernels N: launches an empty kernel N times on the first device. If CUDA returns an error code, it prints the call and exits with 1. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <dlfcn.h>

static const char text[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry prism_kernel()\n{\n\tret;\n}\n";

static void *library;

static void *find(const char *name)
{
	void *function = dlsym(library, name);
	if (!function) {
		printf("libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	return function;
}

static void check(const char *name, int code)
{
	if (code) {
		printf("%s: %d\n", name, code);
		exit(1);
	}
}

/* Calls a function of libcuda with up to three arguments. */
static void call(const char *name, intptr_t a, intptr_t b, intptr_t c)
{
	check(name, ((int (*)(intptr_t, intptr_t, intptr_t))find(name))(a, b, c));
}

typedef int launch(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
		   void **parameters, void **extra);

int main(int argc, char **argv)
{
	void *context, *module, *kernel;
	long count = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	call("cuInit", 0, 0, 0);
	call("cuCtxCreate_v2", (intptr_t)&context, 0, 0);
	call("cuModuleLoadData", (intptr_t)&module, (intptr_t)text, 0);
	call("cuModuleGetFunction", (intptr_t)&kernel, (intptr_t)module, (intptr_t)"prism_kernel");
	for (long i = 0; i < count; i++)
		check("cuLaunchKernel", ((launch *)find("cuLaunchKernel"))(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	call("cuCtxSynchronize", 0, 0, 0);
	printf("launched %ld\n", count);
	return 0;
}
