#include "answers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "answers"
#define NEW FILE_NAME ".new"

enum {
	kept = 8,
	max_answers = 4 << 10,
};

// The answers in the order of their commands.
static struct answer answers[kept];
static size_t count;

static struct answer *find(const char *id)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(answers[i].id, id))
			return &answers[i];
	return NULL;
}

bool answer_known(const char *id)
{
	return find(id) != NULL;
}

// is_open returns whether an answer will change: at most three do, of a recording, its end and a command whose time has not come.
static bool is_open(const struct answer *answer)
{
	return !answer->outcome || !strcmp(answer->outcome, "Recording");
}

struct answer *answer_of(const char *id)
{
	struct answer *known = find(id);
	if (known)
		return known;
	if (count == kept) {
		size_t oldest = 0;
		while (is_open(&answers[oldest]) && oldest + 1 < count)
			oldest++;
		memmove(answers + oldest, answers + oldest + 1, (--count - oldest) * sizeof *answers);
	}
	answers[count] = (struct answer){.outcome = NULL};
	strcpy(answers[count].id, id);
	return &answers[count++];
}

void answer_message(struct answer *answer, const char *text, size_t size)
{
	struct text to = text_of(answer->message, sizeof answer->message);
	for (size_t i = 0; i < size; i++)
		text_byte(&to, (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i]);
}

static void number_add(struct text *to, const char *key, int64_t number)
{
	if (!number)
		return;
	text_add(to, key);
	text_number(to, number);
}

static void line_add(struct text *to, const struct answer *answer)
{
	if (!answer->outcome)
		return;
	text_add(to, "id=");
	text_add(to, answer->id);
	text_add(to, " outcome=");
	text_add(to, answer->outcome);
	number_add(to, " begun=", answer->begun);
	number_add(to, " ended=", answer->ended);
	if (*answer->report) {
		text_add(to, " report=");
		text_add(to, answer->report);
	}
	if (*answer->message) {
		text_add(to, " message=");
		text_add(to, answer->message);
	}
	text_byte(to, '\n');
}

void answers_write(const struct run *run)
{
	char buffer[max_answers];
	struct text text = text_of(buffer, sizeof buffer);
	for (size_t i = 0; i < count; i++)
		line_add(&text, &answers[i]);
	int file = openat(run->folder, NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (file < 0)
		return;
	int failed = write_all(file, text.start, text.length);
	if ((close(file) < 0) | failed || renameat(run->folder, NEW, run->folder, FILE_NAME) < 0)
		(void)unlinkat(run->folder, NEW, 0);
}
