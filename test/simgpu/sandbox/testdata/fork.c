/* Initialises NVML, forks while other threads call it and while none does, and
 * calls it on in both processes. Prints "parent UUID" and "child UUID". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*get_uuid)(void *, char *, unsigned int);
static void *gpu;
static volatile int stop;

static void *call_on(void *unused)
{
	char uuid[96];
	while (!stop)
		get_uuid(gpu, uuid, sizeof uuid);
	return unused;
}

static int report(const char *who)
{
	char uuid[96], first[96] = "";
	for (int i = 0; i < 500; i++) {
		int code = get_uuid(gpu, uuid, sizeof uuid);
		if (!i)
			memcpy(first, uuid, sizeof first);
		if (code || strcmp(first, uuid)) {
			fprintf(stderr, "%s: NVML code %d\n", who, code);
			return 1;
		}
	}
	printf("%s %s\n", who, uuid);
	fflush(stdout);
	return 0;
}

/* No thread is inside a call: all connections are idle when the child starts. */
static int report_both(void)
{
	int status;
	pid_t child = fork();
	if (!child)
		_exit(report("child"));
	int failed = report("parent");
	waitpid(child, &status, 0);
	return failed || status;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	void *library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
	int (*by_index)(unsigned int, void **) = (int (*)(unsigned int, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	get_uuid = (int (*)(void *, char *, unsigned int))dlsym(library, "nvmlDeviceGetUUID");
	if (by_index(0, &gpu) != 1 /* uninitialized */ || init() || by_index(0, &gpu))
		return 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, call_on, NULL);
	for (int round = 0; round < 20; round++) {
		pid_t child = fork();
		if (!child)
			_exit(report("child"));
		int status;
		waitpid(child, &status, 0);
		if (status)
			return 1;
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return report_both();
}
