#include "recording.h"

#include "name.h"
#include "note.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	max_file = 200,
	max_path = 4096 + 16,
	max_ranges = 16, // the maximum in the API
};

// extensions are the extensions of the files of nsys.
static const char *const extensions[] = {".nsys-rep", ".qdstrm"};

// elsewhere returns whether the report stays in the container.
static bool elsewhere(const struct run *run)
{
	return strcmp(run->plan.dir, RESULTS) != 0;
}

static void note_begin(struct run *run)
{
	struct recording *r = &run->recording;
	note_process(run, &r->note, r->started);
	note_add(run, "file", r->file);
	note_add(run, "tool", run->plan.tool);
	if (elsewhere(run))
		note_add(run, "path", r->output);
	if (run->context.several)
		note_add(run, "reason", "SeveralProfiles");
	note_add(run, "state", "Starting");
}

// name_report expands the templates of the report's name and folder.
static void name_report(struct run *run)
{
	char unique[17];
	struct text hex = text_of(unique, sizeof unique);
	text_hexadecimal(&hex, (uint64_t)run->recording.started);
	struct names names = {
		.plan = &run->plan, .context = &run->context, .process = base_name(run->executable), .session = unique, .started = run->recording.started,
	};
	struct text file = text_of(run->recording.file, max_file), output = text_of(run->recording.output, sizeof run->recording.output);
	expand_file(&names, run->plan.file, &file);
	if (!strcmp(run->plan.dir, RESULTS)) {
		folder_path(run->recording.name, "report", &output);
		return;
	}
	expand_folder(&names, run->plan.dir, &output);
	text_byte(&output, '/');
	text_add(&output, run->recording.file);
}

// report_path writes the path of a report: 0 is the number of the only one, others are numbers of ranges.
static void report_path(const struct run *run, int number, const char *extension, char path[max_path])
{
	struct text to = text_of(path, max_path);
	text_add(&to, run->recording.output);
	if (number) {
		text_byte(&to, '.');
		text_number(&to, number);
	}
	text_add(&to, extension);
}

// folders_make creates each missing folder above the report.
static int folders_make(const char *report)
{
	char path[4096];
	struct text to = text_of(path, sizeof path);
	text_add(&to, report);
	for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
		*slash = 0;
		if (mkdir(path, 0755) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return -1;
		*slash = '/';
	}
	*strrchr(path, '/') = 0;
	return access(path, W_OK | X_OK);
}

// taken returns whether a report of that name already exists, which nsys would not overwrite.
static bool taken(const struct run *run)
{
	for (int number = 0; number <= max_ranges; number++)
		for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
			char path[max_path];
			struct stat status;
			report_path(run, number, extensions[i], path);
			if (lstat(path, &status) == 0)
				return true;
		}
	return false;
}

// rename_report renames the report if it stays in the container and an earlier report uses its name.
static void rename_report(struct run *run)
{
	char unique[20];
	struct text suffix = text_of(unique, sizeof unique);
	if (!elsewhere(run) || !taken(run))
		return;
	text_byte(&suffix, '_');
	text_hexadecimal(&suffix, (uint64_t)run->recording.started);
	struct text file = {run->recording.file, sizeof run->recording.file, strlen(run->recording.file)}, output = {run->recording.output, sizeof run->recording.output, strlen(run->recording.output)};
	text_add(&file, unique);
	text_add(&output, unique);
	note_add(run, "file", run->recording.file);
	note_add(run, "path", run->recording.output);
}

int recording_begin(struct run *run, int64_t started, int folder)
{
	struct recording *r = &run->recording;
	r->started = started;
	r->folder = folder;
	if (note_open(&r->note, folder, O_APPEND) < 0)
		return -1;
	name_report(run);
	note_begin(run);
	return 0;
}

int recording_prepare(struct run *run)
{
	if (folders_make(run->recording.output) < 0)
		return -1;
	rename_report(run);
	return 0;
}

// report_find writes the path of a report and returns its size; 0: there is none.
static int64_t report_find(const struct run *run, int number, char path[max_path])
{
	for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
		struct stat status;
		report_path(run, number, extensions[i], path);
		if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
			return status.st_size;
	}
	return 0;
}

// range_note notes the size of the report of a further range: its path differs from the first one in the number.
static void range_note(struct run *run, int number, int64_t size)
{
	char key[16];
	struct text text = text_of(key, sizeof key);
	text_add(&text, "size.");
	text_number(&text, number);
	note_number(run, key, size);
}

bool report_note(struct run *run)
{
	bool found = false;
	for (int number = 0; number <= max_ranges; number++) {
		char path[max_path];
		int64_t size = report_find(run, number, path);
		if (!size)
			continue;
		if (elsewhere(run) && found) {
			range_note(run, number, size);
		} else if (elsewhere(run)) {
			note_number(run, "size", size);
			note_add(run, "path", path);
		}
		found = true;
		if (!number)
			break;
	}
	return found;
}

void recording_discard(struct run *run)
{
	if (!*run->recording.output)
		return;
	for (int number = 0; number <= max_ranges; number++)
		for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
			char path[max_path];
			report_path(run, number, extensions[i], path);
			(void)unlink(path);
		}
	(void)unlinkat(run->recording.folder, "nsys.log", 0);
}

void recording_end(struct run *run)
{
	note_close(&run->recording.note);
	drop(&run->recording.folder);
	run->recording = (struct recording){.folder = closed, .note = {.file = closed}};
}
