#include "name.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	max_value = 64,
	max_placeholder = 128,
	second = 1000000000,
};

static bool plain(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '.' ||
	       byte == '_' || byte == '-';
}

// add_value adds a value, reduced to characters that are safe in every file name. A value of dots only would be another folder.
static void add_value(struct text *to, const char *value)
{
	bool dots = value[strspn(value, ".")] == 0;
	for (size_t i = 0; value[i] && i < max_value; i++)
		text_byte(to, plain(value[i]) && !dots ? value[i] : '_');
}

static void add_number(struct text *to, int64_t number)
{
	text_number(to, number);
}

static void add_time(struct text *to, int64_t started)
{
	char written[32];
	struct tm parts;
	time_t seconds = started / second;
	if (gmtime_r(&seconds, &parts) && strftime(written, sizeof written, "%Y%m%dT%H%M%SZ", &parts))
		add_value(to, written);
}

static const char *rank(void)
{
	static const char *const variables[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		const char *value = getenv(variables[i]);
		if (value)
			return value;
	}
	return "0";
}

static const char *either(const char *first, const char *second_choice)
{
	return *first ? first : second_choice;
}

// add_braced adds the value of "{NAME}".
static bool add_braced(const struct names *n, const char *name, struct text *to)
{
	const struct {
		const char *name, *value;
	} values[] = {
		{"PROCESS_NAME", n->process}, {"NAMESPACE", either(n->context->namespace, n->plan->namespace)},
		{"POD", n->context->pod}, {"CONTAINER", n->context->container}, {"NODE", either(n->context->node, n->plan->node)},
		{"CLAIM", n->plan->claim_name}, {"GPU_UUID", n->plan->gpu}, {"UID", n->session}, {"RANK", rank()},
	};
	if (!strcmp(name, "PROCESS_ID"))
		return add_number(to, getpid()), true;
	if (!strcmp(name, "TIMESTAMP"))
		return add_time(to, n->started), true;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		if (!strcmp(name, values[i].name))
			return add_value(to, values[i].value), true;
	return false;
}

// add_variable adds the value of "%{NAME}": a property of the container, otherwise a variable of the process.
static void add_variable(const struct names *n, const char *name, struct text *to)
{
	static const struct {
		const char *name, *same;
	} known[] = {
		{"POD_FULLNAME", "POD"}, {"CONTAINER_NAME", "CONTAINER"}, {"NAMESPACE", "NAMESPACE"}, {"NODE_NAME", "NODE"},
	};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(name, known[i].name)) {
			(void)add_braced(n, known[i].same, to);
			return;
		}
	const char *value = getenv(name);
	add_value(to, value ? value : "");
}

// placeholder parses "{NAME}" at the beginning of the text; it returns the text after it, or null.
static const char *placeholder(const char *text, char *name)
{
	const char *end = *text == '{' ? strchr(text, '}') : NULL;
	if (!end || end - text > max_placeholder)
		return NULL;
	size_t size = (size_t)(end - text - 1);
	memcpy(name, text + 1, size);
	name[size] = 0;
	return end + 1;
}

static void expand(const struct names *names, const char *template, bool folder, struct text *to)
{
	char name[max_placeholder + 1];
	while (*template) {
		bool variable = *template == '%';
		const char *rest = placeholder(template + variable, name);
		if (rest && variable) {
			add_variable(names, name, to);
			template = rest;
		} else if (rest && add_braced(names, name, to)) {
			template = rest;
		} else {
			text_byte(to, *template == '/' && !folder ? '_' : *template);
			template++;
		}
	}
}

void expand_file(const struct names *names, const char *template, struct text *to)
{
	expand(names, template, false, to);
	if (to->start[0] == '.')
		to->start[0] = '_';
	if (!to->length)
		text_add(to, "report");
}

void expand_folder(const struct names *names, const char *template, struct text *to)
{
	expand(names, template, true, to);
}
