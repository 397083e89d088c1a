#include "base.h"
#include "sanitizer.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// The names by which an instrumented program calls its runtime: they stay in the table of dynamic symbols, or of symbols.
static const char *const calls[] = {"__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"};

// Parts of the names of shared runtimes, of gcc and of clang.
static const char *const runtimes[] = {
	"libasan.so", "liblsan.so", "libtsan.so", "libhwasan.so",
	"libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.lsan", "libclang_rt.msan", "libclang_rt.tsan",
};

enum {
	piece = 64 << 10,
	// carried is the number of bytes of a piece that are searched again with the next one: the longest name with the null before it.
	carried = 32,
};

// names returns whether a table of symbol names contains one of the calls. They share their end, so each piece is searched once.
static bool names(int file, uint64_t offset, uint64_t size)
{
	static const char end[] = "san_init"; // with the null
	static char bytes[carried + piece];
	size_t kept = 1;
	bytes[0] = 0; // before the first name
	while (size > 0) {
		ssize_t got = pread(file, bytes + kept, size < piece ? (size_t)size : piece, (off_t)offset);
		if (got <= 0)
			return false;
		const char *from = bytes, *limit = bytes + kept + got, *found;
		while ((found = memmem(from, (size_t)(limit - from), end, sizeof end))) {
			from = found + sizeof end;
			for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
				const char *name = from - strlen(calls[i]) - 1;
				if (name > bytes && !name[-1] && !strcmp(name, calls[i]))
					return true;
			}
		}
		offset += (uint64_t)got;
		size -= (uint64_t)got;
		kept = limit - bytes < carried ? (size_t)(limit - bytes) : carried;
		memmove(bytes, limit - kept, kept);
	}
	return false;
}

// in_tables searches each table of names of a 64-bit ELF file. The file may change in the meantime, and its tables may overlap: at most its
// length is read.
static bool in_tables(int file, uint64_t size)
{
	Elf64_Ehdr header;
	if (pread(file, &header, sizeof header, 0) != sizeof header)
		return false;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
		return false;
	uint64_t left = size;
	for (uint64_t i = 0; i < header.e_shnum && header.e_shoff < size; i++) {
		Elf64_Shdr section;
		if (pread(file, &section, sizeof section, (off_t)(header.e_shoff + i * sizeof section)) != sizeof section)
			return false;
		if (section.sh_type != SHT_STRTAB || section.sh_offset > size || section.sh_size > size - section.sh_offset)
			continue;
		if (section.sh_size > left)
			return false;
		left -= section.sh_size;
		if (names(file, section.sh_offset, section.sh_size))
			return true;
	}
	return false;
}

static bool in_program(const char *executable)
{
	int file = open(executable, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file < 0)
		return false;
	struct stat status;
	bool found = fstat(file, &status) == 0 && S_ISREG(status.st_mode) && in_tables(file, (uint64_t)status.st_size);
	close(file);
	return found;
}

bool has_sanitizer(const char *executable)
{
	const char *preloaded = getenv("LD_PRELOAD");
	for (size_t i = 0; preloaded && i < sizeof runtimes / sizeof *runtimes; i++)
		if (strstr(preloaded, runtimes[i]))
			return true;
	return in_program(executable);
}
