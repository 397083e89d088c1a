// Programs that do not bear the profiler's libraries.
#ifndef PRISM_RUN_SANITIZER_H
#define PRISM_RUN_SANITIZER_H

#include <stdbool.h>

// has_sanitizer says whether the program, or what LD_PRELOAD names, has the runtime of a sanitizer for addresses, leaks, memory or threads:
// with libraries of nsys beside it such a program ends at its start, or reports their faults as its own and exits with another code. A static
// runtime in a program without symbols is not seen.
bool has_sanitizer(const char *executable);

#endif
