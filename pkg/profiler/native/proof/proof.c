// The process that a version of the profiler records to prove itself. It loads the C library as other programs do, of whatever version the
// image has: it needs nothing that old ones lack, so it begins without what a compiler adds.
#include <unistd.h>

#ifdef __x86_64__
__attribute__((force_align_arg_pointer))
#endif
void _start(void)
{
	usleep(200 * 1000);
	_exit(0);
}
