#ifndef PRISM_RUN_NAME_H
#define PRISM_RUN_NAME_H

#include "base.h"
#include "plan.h"

// names are the values of the placeholders in templates of files and folders.
struct names {
	const struct plan *plan;
	const struct context *context;
	const char *process, *session;
	int64_t started; // nanoseconds since 1970
};

// expand_file writes the file name of a template: values of placeholders contain only letters, digits, '.', '_' and '-', and the name
// contains no slash.
void expand_file(const struct names *names, const char *template, struct text *to);

// expand_folder writes the path of a template.
void expand_folder(const struct names *names, const char *template, struct text *to);

#endif
