// Programs that are incompatible with the profiler's libraries.
#ifndef PRISM_RUN_SANITIZER_H
#define PRISM_RUN_SANITIZER_H

#include <stdbool.h>

// has_sanitizer returns whether the program, or a library in LD_PRELOAD, contains the runtime of a sanitizer for addresses, leaks, memory
// or threads: together with libraries of nsys such a program exits at its start, or reports faults of the libraries as its own and exits
// with another code. A static runtime in a program without symbols is not detected.
bool has_sanitizer(const char *executable);

#endif
