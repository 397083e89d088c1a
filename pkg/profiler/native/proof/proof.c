// The process that a version of the profiler records in its test. It loads the C library of the image, like other programs. The library may
// be old, so the program uses only functions of old versions, and starts without the compiler's startup code. It runs until its standard input
// is closed.
#include <unistd.h>

#ifdef __x86_64__
__attribute__((force_align_arg_pointer))
#endif
void _start(void)
{
	char byte;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	usleep(200 * 1000);
	_exit(0);
}
