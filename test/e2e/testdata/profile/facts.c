// Prints what the process was given and exits with 5: at once, or, with the variable STAY, after as many seconds. It has no headers, so that it
// can be linked with any C library.
int printf(const char *, ...);
int fflush(void *);
char *getenv(const char *);
int umask(int);
int getsid(int);
int getuid(void);
unsigned sleep(unsigned);
int atoi(const char *);
void exit(int);
void _exit(int);

int main(int argc, char **argv)
{
	printf("%d arguments of %s\n", argc, argv[0]);
	for (int i = 1; i < argc; i++)
		printf("argument %s\n", argv[i]);
	printf("umask %o session %d user %d\n", umask(0), getsid(0), getuid());
	printf("variable %s\n", getenv("QUOTED") ? getenv("QUOTED") : "none");
	fflush(0);
	if (getenv("STAY")) {
		sleep(atoi(getenv("STAY")));
		exit(5);
	}
	_exit(5);
}
