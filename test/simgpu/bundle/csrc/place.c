/* The place of the library, and the GPUs and MIG capabilities that its process can open. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "client.h"

#define NVIDIA_MAJOR 195
#define CONTROL_MINOR 255
#define OPERATOR_ROOT "/run/nvidia/driver"
#define SOCKET_DIR "/run/nvidia-persistenced"
#define SANDBOX_FILE "/run/simgpu/sandbox"

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

/* A directory of links to the libraries is no driver root, although it may be called lib. */
static int has_socket(const char *candidate)
{
	char directory[PATH_MAX + sizeof SOCKET_DIR];
	snprintf(directory, sizeof directory, "%s" SOCKET_DIR, candidate);
	return !access(directory, F_OK);
}

static void find_root(void)
{
	Dl_info info;
	if (!dladdr((void *)simgpu_root, &info) || !info.dli_fname)
		return;
	snprintf(root, sizeof root, "%s", info.dli_fname);
	if (root[0] == '/' && cut_library_dir(root) && has_socket(root))
		return;
	if (!realpath(info.dli_fname, root) || !cut_library_dir(root))
		root[0] = 0;
}

const char *simgpu_root(void)
{
	pthread_once(&root_once, find_root);
	return root;
}

static int is_char_device(const char *path, dev_t *device)
{
	struct stat st;
	if (stat(path, &st) || !S_ISCHR(st.st_mode))
		return 0;
	*device = st.st_rdev;
	return 1;
}

struct sight {
	uint8_t gpus[MAX_MINORS];
	uint8_t capabilities[MAX_CAPABILITIES];
	int control;
};

static void see_gpu(struct sight *sight, const char *name, dev_t device)
{
	unsigned int minor = minor(device);
	if (major(device) != NVIDIA_MAJOR)
		return;
	if (minor == CONTROL_MINOR)
		sight->control = 1;
	else if (minor < CONTROL_MINOR && name[6] >= '0' && name[6] <= '9')
		sight->gpus[minor] = 1;
}

/* The major number of capabilities differs from machine to machine. */
static void see_capability(struct sight *sight, const char *name, dev_t device)
{
	(void)name;
	if (minor(device) < MAX_CAPABILITIES)
		sight->capabilities[minor(device)] = 1;
}

/* Shows see the char devices in a directory whose names begin with stem. */
static void look_in(const char *directory, const char *stem, struct sight *sight, void (*see)(struct sight *, const char *, dev_t))
{
	char path[PATH_MAX];
	DIR *dir = opendir(directory);
	if (!dir)
		return;
	for (struct dirent *entry; (entry = readdir(dir));) {
		dev_t device;
		if (strncmp(entry->d_name, stem, strlen(stem)))
			continue;
		snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
		if (is_char_device(path, &device))
			see(sight, entry->d_name, device);
	}
	closedir(dir);
}

static void look_below(const char *prefix, struct sight *sight)
{
	char directory[PATH_MAX];
	snprintf(directory, sizeof directory, "%s/dev", prefix);
	look_in(directory, "nvidia", sight, see_gpu);
	snprintf(directory, sizeof directory, "%s/dev/nvidia-caps", prefix);
	look_in(directory, "nvidia-cap", sight, see_capability);
}

/* If an operator keeps the driver in a container, the nodes of the host are next to its root: <host>/run/nvidia/driver belongs to
 * <host>/dev. */
static void look_at_host(const char *driver_root, struct sight *sight)
{
	char host[PATH_MAX];
	size_t length = strlen(driver_root), tail = strlen(OPERATOR_ROOT);
	if (length < tail || strcmp(driver_root + length - tail, OPERATOR_ROOT))
		return;
	snprintf(host, sizeof host, "%.*s", (int)(length - tail), driver_root);
	look_below(host, sight);
}

/* A sandbox keeps its nodes below its root; the nodes in /dev belong to the machine. */
static int is_sandbox(const char *driver_root)
{
	char file[PATH_MAX + sizeof SANDBOX_FILE];
	snprintf(file, sizeof file, "%s" SANDBOX_FILE, driver_root);
	return *driver_root && !access(file, F_OK);
}

int simgpu_look(struct visible *visible)
{
	struct sight sight = { .control = 0 };
	const char *driver_root = simgpu_root();
	if (!is_sandbox(driver_root))
		look_below("", &sight);
	if (*driver_root) {
		look_below(driver_root, &sight);
		look_at_host(driver_root, &sight);
	}
	visible->minor_count = visible->capability_count = 0;
	for (unsigned int minor = 0; minor < CONTROL_MINOR; minor++)
		if (sight.gpus[minor])
			visible->minors[visible->minor_count++] = (uint8_t)minor;
	for (unsigned int minor = 0; minor < MAX_CAPABILITIES; minor++)
		if (sight.capabilities[minor])
			visible->capabilities[visible->capability_count++] = minor;
	return sight.control ? 0 : -1;
}

static int nodes[MAX_MINORS];
static uint32_t node_count;

/* Without a driver in the kernel, a node can only be opened as a path. Processes see it below /dev, or below the root of a sandbox. */
static int open_node(unsigned int minor)
{
	const char *const roots[] = { "", simgpu_root() };
	for (size_t i = is_sandbox(roots[1]); i < sizeof roots / sizeof *roots; i++) {
		char path[PATH_MAX];
		dev_t device;
		snprintf(path, sizeof path, "%s/dev/nvidia%u", roots[i], minor);
		if (!is_char_device(path, &device) || device != makedev(NVIDIA_MAJOR, minor))
			continue;
		int fd = open(path, O_PATH | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	return -1;
}

void simgpu_open_nodes(const struct visible *visible)
{
	for (uint32_t i = 0; i < visible->minor_count; i++) {
		int fd = open_node(visible->minors[i]);
		if (fd >= 0)
			nodes[node_count++] = fd;
	}
}

void simgpu_close_nodes(void)
{
	while (node_count)
		close(nodes[--node_count]);
}
