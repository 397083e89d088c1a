/* gpu-load [--memory 2Gi] [--sm 60] [--duration 10s]: allocates this amount on the first device and uses this share of its multiprocessors,
 * until it is terminated or the time is over; it exits with 1 after an error code of CUDA. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

static void *library;

/* Calls a function of libcuda with up to three arguments. */
static int call(const char *name, intptr_t a, intptr_t b, intptr_t c)
{
	int (*function)(intptr_t, intptr_t, intptr_t) = (int (*)(intptr_t, intptr_t, intptr_t))dlsym(library, name);
	int code = function ? function(a, b, c) : -1;
	if (code)
		printf("%s: %d\n", name, code);
	return code;
}

/* The factor of a unit, 0 for an unknown one. */
static double unit_of(const char *unit, const char *const *names, const double *factors)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(unit, names[i]))
			return factors[i];
	return 0;
}

static int number(const char *text, const char *const *names, const double *factors, double *value)
{
	char *unit;
	*value = strtod(text, &unit);
	double factor = unit_of(unit, names, factors);
	if (unit == text || *value < 0 || !factor)
		return -1;
	*value *= factor;
	return 0;
}

static const char *const sizes[] = { "", "Ki", "Mi", "Gi", "Ti", NULL };
static const double size_factors[] = { 1, 1024, 1048576, 1073741824, 1099511627776.0 };
static const char *const times[] = { "s", "ms", "m", "h", "", NULL };
static const double time_factors[] = { 1, 0.001, 60, 3600, 1 };
static const char *const percents[] = { "", "%", NULL };
static const double percent_factors[] = { 1, 1 };

struct load {
	double bytes, sm, seconds;
};

static int parse(int argc, char **argv, struct load *load)
{
	for (int i = 1; i < argc; i += 2) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";
		int failed = -1;
		if (!strcmp(argv[i], "--memory"))
			failed = number(value, sizes, size_factors, &load->bytes);
		else if (!strcmp(argv[i], "--sm"))
			failed = number(value, percents, percent_factors, &load->sm) || load->sm > 100;
		else if (!strcmp(argv[i], "--duration"))
			failed = number(value, times, time_factors, &load->seconds);
		if (failed) {
			fprintf(stderr, "gpu-load: %s %s: want --memory 2Gi, --sm 0 to 100, --duration 10s\n", argv[i], value);
			return -1;
		}
	}
	return 0;
}

static int start(const struct load *load)
{
	void *context;
	uint64_t address;
	intptr_t hundredths = (intptr_t)(load->sm * 100);
	if (call("cuInit", 0, 0, 0) || call("cuCtxCreate_v2", (intptr_t)&context, 0, 0))
		return 1;
	if (load->bytes && call("cuMemAlloc_v2", (intptr_t)&address, (intptr_t)load->bytes, 0))
		return 1;
	return call("simgpu_work", hundredths, 0, 0);
}

static void finish(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv)
{
	struct load load = { 0 };
	if (parse(argc, argv, &load))
		return 2;
	signal(SIGTERM, finish);
	signal(SIGINT, finish);
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	if (start(&load))
		return 1;
	printf("working: %.0f MiB, %g %%\n", load.bytes / 1048576, load.sm);
	fflush(stdout);
	if (!load.seconds)
		for (;;)
			pause();
	struct timespec left = { (time_t)load.seconds, (long)((load.seconds - (double)(time_t)load.seconds) * 1e9) };
	while (nanosleep(&left, &left))
		;
	return 0;
}
