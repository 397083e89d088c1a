// Parses commands: reads a size and that many bytes at a time, and writes the fields of the command in a line.
#include "../run/control.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	for (uint32_t size; fread(&size, sizeof size, 1, stdin) == 1;) {
		struct control control;
		char *bytes = malloc(size + !size); // no byte follows that the parser may read
		if (!bytes || fread(bytes, 1, size, stdin) != size)
			return 1;
		int is = control_parse(bytes, size, &control);
		free(bytes);
		printf("%d id=%s verb=%d at=%" PRId64 " until=%" PRId64 " frequency=%" PRId64 " backtrace=%s\n", is, control.id, control.verb,
			control.at, control.until, control.frequency, control.backtrace);
		fflush(stdout);
	}
	return 0;
}
