#include "base.h"
#include "sanitizer.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The names by which an instrumented program calls its runtime: they stay in the table of dynamic symbols, or of symbols.
static const char *const calls[] = {"__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"};

// Parts of the names of shared runtimes, of gcc and of clang.
static const char *const runtimes[] = {
	"libasan.so", "liblsan.so", "libtsan.so", "libhwasan.so",
	"libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.lsan", "libclang_rt.msan", "libclang_rt.tsan",
};

// names says whether a table of symbols' names has one of the calls. They all end alike, so the table is read once.
static bool names(const char *table, size_t size)
{
	static const char end[] = "san_init"; // with the null
	const char *from = table, *found;
	while ((found = memmem(from, size - (size_t)(from - table), end, sizeof end))) {
		const char *name = found;
		while (name > table && name[-1])
			name--;
		for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
			if (!strcmp(name, calls[i]))
				return true;
		from = found + sizeof end;
	}
	return false;
}

// in_tables looks into each table of names of a 64-bit ELF file.
static bool in_tables(const char *file, uint64_t size)
{
	Elf64_Ehdr header;
	if (size < sizeof header)
		return false;
	memcpy(&header, file, sizeof header);
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
		return false;
	for (uint64_t i = 0; i < header.e_shnum; i++) {
		Elf64_Shdr section;
		if (header.e_shoff > size || size - header.e_shoff < (i + 1) * sizeof section)
			return false;
		memcpy(&section, file + header.e_shoff + i * sizeof section, sizeof section);
		if (section.sh_type == SHT_STRTAB && section.sh_offset <= size && section.sh_size <= size - section.sh_offset &&
		    names(file + section.sh_offset, section.sh_size))
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
	void *content = MAP_FAILED;
	if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
		content = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	bool found = content != MAP_FAILED && in_tables(content, (uint64_t)status.st_size);
	if (content != MAP_FAILED)
		munmap(content, (size_t)status.st_size);
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
