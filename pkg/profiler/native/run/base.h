// Small helpers. Functions that allocate return null on failure, functions that can fail return -1, with errno.
#ifndef PRISM_RUN_BASE_H
#define PRISM_RUN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// strings is a growing list of strings.
struct strings {
	char **items; // one more than count, the last is null
	size_t count;
};

// strings_add also fails without an item.
int strings_add(struct strings *list, const char *item);

// text is a bounded string that is written piece by piece; text that does not fit is omitted.
struct text {
	char *start;
	size_t size, length; // size with the terminating null
};

struct text text_of(char *buffer, size_t size);
void text_add(struct text *to, const char *from);
void text_byte(struct text *to, char byte);
void text_number(struct text *to, int64_t number);

// text_hexadecimal adds 16 digits.
void text_hexadecimal(struct text *to, uint64_t number);

// text_joined returns a new string.
char *text_joined(const char *one, const char *other);

// after returns the text after the prefix, or null.
const char *after(const char *text, const char *prefix);

// base_name returns the text after the last slash.
const char *base_name(const char *path);

// parse_number reads a decimal number within bounds.
int parse_number(const char *text, long least, long most, long *number);

// read_file reads a whole file, up to most bytes; size does not include the terminating null of the result.
char *read_file(int directory, const char *path, size_t most, size_t *size);

// write_all writes everything, with retries after interruptions.
int write_all(int file, const char *bytes, size_t size);

// drop closes a descriptor without unwritten data, if it is open, and sets it to -1.
void drop(int *file);

// milliseconds of a monotonic clock, nanoseconds since 1970.
int64_t milliseconds(void);
int64_t wall_clock(void);

#endif
