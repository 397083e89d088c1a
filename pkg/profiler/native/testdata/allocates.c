// Allocates memory, and prints its arguments and the year.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
	time_t now = time(NULL);
	char *year = malloc(16), *told = malloc(64);
	strncpy(told, argc > 1 ? argv[1] : "", 63);
	strftime(year, 16, "%Y", localtime(&now));
	printf("%s %s\n", told, year);
	free(told);
	free(year);
	return 3;
}
