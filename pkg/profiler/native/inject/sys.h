// System calls without a C library, for x86_64 and aarch64.
#ifndef PRISM_INJECT_SYS_H
#define PRISM_INJECT_SYS_H

#if !defined(__linux__) || !defined(__LP64__)
#error "Linux with 64-bit pointers only"
#endif

#if defined(__x86_64__)
enum {
	SYS_read = 0, SYS_close = 3, SYS_mmap = 9, SYS_munmap = 11, SYS_getpid = 39, SYS_execve = 59,
	SYS_openat = 257, SYS_newfstatat = 262, SYS_readlinkat = 267,
};

static inline long prism_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
enum {
	SYS_openat = 56, SYS_close = 57, SYS_read = 63, SYS_readlinkat = 78, SYS_newfstatat = 79, SYS_getpid = 172,
	SYS_munmap = 215, SYS_execve = 221, SYS_mmap = 222,
};

static inline long prism_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory", "cc");
	return x0;
}
#else
#error "x86_64 and aarch64 only"
#endif

enum {
	AT_FDCWD_ = -100,
	O_CLOEXEC_ = 02000000,
#if defined(__aarch64__)
	O_NOFOLLOW_ = 0100000,
#else
	O_NOFOLLOW_ = 0400000,
#endif
	PROT_READ_ = 1,
	PROT_WRITE_ = 2,
	MAP_PRIVATE_ = 2,
	MAP_ANONYMOUS_ = 0x20,
	MAP_POPULATE_ = 0x8000,
	AT_EMPTY_PATH_ = 0x1000,
	S_IFMT_ = 0170000,
	S_IFREG_ = 0100000,
};

// file_status is the beginning of the kernel's struct stat.
struct file_status {
	unsigned long device;
	unsigned long inode;
#if defined(__x86_64__)
	unsigned long links;
	unsigned int mode;
	unsigned int owner, group, padding;
	unsigned long special;
#else
	unsigned int mode;
	unsigned int links;
	unsigned int owner, group;
	unsigned long special, padding;
#endif
	long size;
	char rest[128];
};

#endif
