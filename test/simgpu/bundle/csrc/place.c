/* Where the library lies, and which GPUs its process can open. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "client.h"

#define NVIDIA_MAJOR 195
#define CONTROL_MINOR 255
#define OPERATOR_ROOT "/run/nvidia/driver"

static char root[PATH_MAX];
static pthread_once_t root_once = PTHREAD_ONCE_INIT;

/* Directories in which a driver puts its libraries, longest first. */
static const char *const library_dirs[] = {
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib",
};

/* Cuts the library directory off path; 0 when path is in none of them. */
static int cut_library_dir(char *path)
{
	char *file = strrchr(path, '/');
	if (!file)
		return 0;
	*file = 0;
	size_t length = strlen(path);
	for (size_t i = 0; i < sizeof library_dirs / sizeof *library_dirs; i++) {
		size_t tail = strlen(library_dirs[i]);
		if (length >= tail && !strcmp(path + length - tail, library_dirs[i])) {
			path[length - tail] = 0;
			return 1;
		}
	}
	return 0;
}

static void find_root(void)
{
	Dl_info info;
	if (!dladdr((void *)simgpu_root, &info) || !info.dli_fname)
		return;
	snprintf(root, sizeof root, "%s", info.dli_fname);
	if (root[0] == '/' && cut_library_dir(root))
		return;
	if (!realpath(info.dli_fname, root) || !cut_library_dir(root))
		root[0] = 0;
}

const char *simgpu_root(void)
{
	pthread_once(&root_once, find_root);
	return root;
}

static int is_gpu_node(const char *path, unsigned int *minor)
{
	struct stat st;
	if (stat(path, &st) || !S_ISCHR(st.st_mode) || major(st.st_rdev) != NVIDIA_MAJOR)
		return 0;
	*minor = minor(st.st_rdev);
	return 1;
}

struct sight {
	uint8_t gpus[256];
	int control;
};

static void look_in(const char *prefix, struct sight *sight)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s/dev", prefix);
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		unsigned int minor;
		if (strncmp(entry->d_name, "nvidia", 6))
			continue;
		snprintf(path, sizeof path, "%s/dev/%s", prefix, entry->d_name);
		if (!is_gpu_node(path, &minor))
			continue;
		if (minor == CONTROL_MINOR)
			sight->control = 1;
		else if (minor < CONTROL_MINOR && entry->d_name[6] >= '0' && entry->d_name[6] <= '9')
			sight->gpus[minor] = 1;
	}
	closedir(dir);
}

/* Where an operator keeps the driver in a container, the nodes of the host are
 * those next to its root: <host>/run/nvidia/driver belongs to <host>/dev. */
static void look_at_host(const char *driver_root, struct sight *sight)
{
	char host[PATH_MAX];
	size_t length = strlen(driver_root), tail = strlen(OPERATOR_ROOT);
	if (length < tail || strcmp(driver_root + length - tail, OPERATOR_ROOT))
		return;
	snprintf(host, sizeof host, "%.*s", (int)(length - tail), driver_root);
	look_in(host, sight);
}

/* Returns how many minors were written, or -1 without a control node. */
int simgpu_visible(uint8_t *minors, int room)
{
	struct sight sight = { .control = 0 };
	const char *driver_root = simgpu_root();
	look_in("", &sight);
	if (*driver_root) {
		look_in(driver_root, &sight);
		look_at_host(driver_root, &sight);
	}
	if (!sight.control)
		return -1;
	int count = 0;
	for (int minor = 0; minor < CONTROL_MINOR && count < room; minor++)
		if (sight.gpus[minor])
			minors[count++] = (uint8_t)minor;
	return count;
}
