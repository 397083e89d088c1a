/* A driver library that only has to be there: a file with the right soname. */
int simgpu_placeholder(void)
{
	return 0;
}
