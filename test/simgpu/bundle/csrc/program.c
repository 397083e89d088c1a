/* A driver program that only needs to exist. */
#include <stdio.h>

int main(int argc, char **argv)
{
	(void)argc;
	fprintf(stderr, "%s: this GPU node is simulated and has no such program\n", argv[0]);
	return 1;
}
