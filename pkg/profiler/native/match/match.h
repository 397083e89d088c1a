// Matches a process against the rules of a plan: the file that pkg/pattern encodes (described in encode.go). Freestanding: it uses no libc,
// no global data, and only memory on the stack. For any file and texts, it reads nothing outside of them, and a truncated or damaged file
// selects no process.
#ifndef PRISM_MATCH_H
#define PRISM_MATCH_H

typedef unsigned char prism_u8;
typedef unsigned int prism_u32;
typedef unsigned long prism_u64; // LP64: x86_64 and arm64

enum {
	PRISM_MAGIC = 0x4d535250,
	PRISM_VERSION = 1,
	PRISM_HEADER = 40,
	PRISM_TABLE_HEADER = 32 + 2 * 128,
	PRISM_MAX_FILE = 1 << 20,
	PRISM_MAX_TABLES = 33,
	PRISM_MAX_TEXT = 64 << 10,
	PRISM_ACCEPT = 1,
	PRISM_FINAL = 2,
	PRISM_COMMAND_LINE = 0,
	PRISM_EXECUTABLE = 1,
	PRISM_ARGV0 = 2,
	PRISM_INVALID = 0xFFFD, // replaces a byte that is not part of a character
};

// The state of one table while it reads. State is always below states.
struct prism_table {
	const prism_u8 *ascii, *next, *flags, *ends, *classes_of;
	prism_u32 states, classes, ranges, state, include;
};

struct prism_tables {
	struct prism_table table[PRISM_MAX_TABLES];
	prism_u32 count;
};

static inline prism_u32 prism_u16_at(const prism_u8 *p) { return (prism_u32)p[0] | (prism_u32)p[1] << 8; }

static inline prism_u32 prism_u32_at(const prism_u8 *p) { return prism_u16_at(p) | prism_u16_at(p + 2) << 16; }

static inline prism_u64 prism_u64_at(const prism_u8 *p) { return prism_u32_at(p) | (prism_u64)prism_u32_at(p + 4) << 32; }

static inline prism_u64 prism_mixed(prism_u64 sum, prism_u64 word) {
	sum = (sum ^ word) * 0x9e3779b97f4a7c15UL;
	return sum << 29 | sum >> 35;
}

static prism_u64 prism_checksum(const prism_u8 *p, prism_u64 size) {
	const prism_u64 seed = 0x2545f4914f6cdd1dUL;
	prism_u64 a = seed, b = seed + 1, c = seed + 2, d = seed + 3, i = 0;
	for (; i + 32 <= size; i += 32) {
		a = prism_mixed(a, prism_u64_at(p + i));
		b = prism_mixed(b, prism_u64_at(p + i + 8));
		c = prism_mixed(c, prism_u64_at(p + i + 16));
		d = prism_mixed(d, prism_u64_at(p + i + 24));
	}
	if (i + 8 <= size) a = prism_mixed(a, prism_u64_at(p + i));
	if (i + 16 <= size) b = prism_mixed(b, prism_u64_at(p + i + 8));
	if (i + 24 <= size) c = prism_mixed(c, prism_u64_at(p + i + 16));
	return prism_mixed(prism_mixed(prism_mixed(prism_mixed(size, a), b), c), d);
}

// The part of the file at an offset, or 0 if it is beyond the end of the file. Length is below 2^43.
static const prism_u8 *prism_part(const prism_u8 *file, prism_u64 size, prism_u64 at, prism_u64 length) {
	return length <= size && at <= size - length ? file + at : 0;
}

static int prism_table_at(struct prism_table *t, const prism_u8 *file, prism_u64 size, prism_u64 at) {
	const prism_u8 *head = prism_part(file, size, at, PRISM_TABLE_HEADER);
	if (!head) return 0;
	t->states = prism_u32_at(head);
	t->classes = prism_u32_at(head + 4);
	t->ranges = prism_u32_at(head + 8);
	t->state = prism_u32_at(head + 12);
	if (t->state >= t->states || t->states > size || t->classes > size || t->ranges > size) return 0;
	t->ascii = head + 32;
	t->next = prism_part(file, size, prism_u32_at(head + 16), 2 * (prism_u64)t->states * t->classes);
	t->flags = prism_part(file, size, prism_u32_at(head + 20), t->states);
	t->ends = prism_part(file, size, prism_u32_at(head + 24), 4 * (prism_u64)t->ranges);
	t->classes_of = prism_part(file, size, prism_u32_at(head + 28), 2 * (prism_u64)t->ranges);
	return t->next && t->flags && t->ends && t->classes_of;
}

// Reads the header and the tables' headers; 0 if the file is damaged.
static int prism_open(struct prism_tables *all, const prism_u8 *file, prism_u64 size) {
	if (size < PRISM_HEADER || size > PRISM_MAX_FILE || size % 8 || prism_u32_at(file) != PRISM_MAGIC || prism_u32_at(file + 4) != PRISM_VERSION ||
	    prism_u32_at(file + 16) != size || prism_u64_at(file + 8) != prism_checksum(file + 16, size - 16))
		return 0;
	all->count = prism_u32_at(file + 24);
	prism_u32 include = prism_u32_at(file + 28);
	if (all->count > PRISM_MAX_TABLES || include > 1 || include > all->count || prism_u32_at(file + 20) > PRISM_ARGV0 ||
	    !prism_part(file, size, PRISM_HEADER, 4 * all->count))
		return 0;
	for (prism_u32 i = 0; i < all->count; i++) {
		if (!prism_table_at(&all->table[i], file, size, prism_u32_at(file + PRISM_HEADER + 4 * i))) return 0;
		all->table[i].include = i < include;
	}
	return 1;
}

// The class of a character that is not ASCII. A table without ranges returns a class that is invalid in every state.
static prism_u32 prism_class(const struct prism_table *t, prism_u32 character) {
	if (!t->ranges) return t->classes;
	prism_u32 low = 0, high = t->ranges - 1;
	while (low < high) {
		prism_u32 middle = (low + high) / 2;
		if (prism_u32_at(t->ends + 4 * middle) >= character)
			high = middle;
		else
			low = middle + 1;
	}
	return prism_u16_at(t->classes_of + 2 * low);
}

// Drops the tables whose answer is known, and returns 0 if the process is not selected, or the file is damaged. At the end of the text
// every answer is known.
static int prism_answers(struct prism_tables *all, int end) {
	for (prism_u32 i = 0; i < all->count;) {
		struct prism_table *t = &all->table[i];
		prism_u32 flags = t->flags[t->state];
		if (!end && !(flags & PRISM_FINAL)) {
			i++;
			continue;
		}
		if ((flags & PRISM_ACCEPT) != t->include) return 0;
		all->count--;
		if (i != all->count) *t = all->table[all->count];
	}
	return 1;
}

// Every table reads a character; returns the same as prism_answers.
static int prism_read(struct prism_tables *all, prism_u32 character) {
	prism_u32 final = 0;
	for (prism_u32 i = 0; i < all->count; i++) {
		struct prism_table *t = &all->table[i];
		prism_u32 class = character < 128 ? prism_u16_at(t->ascii + 2 * character) : prism_class(t, character);
		if (class >= t->classes) return 0;
		t->state = prism_u16_at(t->next + 2 * ((prism_u64)t->state * t->classes + class));
		if (t->state >= t->states) return 0;
		final |= t->flags[t->state] & PRISM_FINAL;
	}
	return final ? prism_answers(all, 0) : 1;
}

static inline int prism_continues(prism_u8 byte) { return (byte & 0xC0) == 0x80; }

// The character that ends before *end, decoded as in Go; *end moves to its first byte.
static prism_u32 prism_last(const prism_u8 *begin, const prism_u8 **end) {
	const prism_u8 *p = *end - 1;
	prism_u32 bits = 0, length = 1;
	*end = p;
	if (*p < 0x80) return *p;
	for (; length < 4 && p > begin && prism_continues(*p); p--) {
		bits |= (prism_u32)(*p & 0x3F) << 6 * (length - 1);
		length++;
	}
	prism_u32 least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000, lead = *p;
	if (length < 2 || lead >> (7 - length) != (2U << length) - 2) return PRISM_INVALID;
	bits |= (lead & ((1U << (7 - length)) - 1)) << 6 * (length - 1);
	if (bits < least || bits > 0x10FFFF || (bits >= 0xD800 && bits <= 0xDFFF)) return PRISM_INVALID;
	*end = p;
	return bits;
}

// Reads a text from its end; returns 1 to continue, 0 like prism_answers.
static int prism_feed(struct prism_tables *all, const prism_u8 *text, prism_u64 length) {
	const prism_u8 *end = text + length;
	while (end > text && all->count)
		if (!prism_read(all, prism_last(text, &end))) return 0;
	return 1;
}

static prism_u64 prism_length(const char *text, prism_u64 most) {
	prism_u64 n = 0;
	while (n < most && text[n]) n++;
	return n;
}

// Reads the arguments, joined with one space, from the end of the first PRISM_MAX_TEXT bytes.
static int prism_feed_arguments(struct prism_tables *all, int argc, char **argv) {
	prism_u64 left = PRISM_MAX_TEXT;
	int last = 0;
	for (;; last++) {
		prism_u64 length = prism_length(argv[last], left);
		left -= length;
		if (!left || last + 1 >= argc || !argv[last + 1]) {
			if (!prism_feed(all, (const prism_u8 *)argv[last], length)) return 0;
			break;
		}
		left--;
	}
	while (last-- > 0) {
		if (all->count && !prism_read(all, ' ')) return 0;
		if (!prism_feed(all, (const prism_u8 *)argv[last], prism_length(argv[last], PRISM_MAX_TEXT))) return 0;
	}
	return 1;
}

// Returns whether the base name of exe is one of the file's names, or the names are damaged.
static int prism_named(const prism_u8 *file, prism_u64 size, const char *exe) {
	const char *base = exe;
	for (const char *p = exe; *p; p++)
		if (*p == '/') base = p + 1;
	prism_u64 at = prism_u32_at(file + 32);
	for (prism_u32 n = prism_u32_at(file + 36); n; n--) {
		const prism_u8 *name = prism_part(file, size, at, 1);
		if (!name || !prism_part(file, size, at + 1, *name)) return 1;
		prism_u32 i = 0;
		while (i < *name && base[i] && name[1 + i] == (prism_u8)base[i]) i++;
		if (i == *name && !base[i]) return 1;
		at += 1 + (prism_u64)*name;
	}
	return 0;
}

// 1 if the process with these arguments and the executable exe must be profiled, otherwise 0. The file is size bytes long; argv ends after
// argc arguments, or earlier with a null pointer; exe is a path or null.
__attribute__((unused)) static int prism_match(const void *file, unsigned long size, int argc, char **argv, const char *exe) {
	struct prism_tables all;
	if (!exe) exe = "";
	if (!prism_open(&all, file, size) || prism_named(file, size, exe) || !prism_answers(&all, 0)) return 0;
	prism_u32 target = prism_u32_at((const prism_u8 *)file + 20);
	int read = 1, arguments = argc > 0 && argv[0];
	if (target == PRISM_EXECUTABLE)
		read = prism_feed(&all, (const prism_u8 *)exe, prism_length(exe, PRISM_MAX_TEXT));
	else if (arguments && target == PRISM_ARGV0)
		read = prism_feed(&all, (const prism_u8 *)argv[0], prism_length(argv[0], PRISM_MAX_TEXT));
	else if (arguments)
		read = prism_feed_arguments(&all, argc, argv);
	return read && prism_answers(&all, 1);
}

#endif
