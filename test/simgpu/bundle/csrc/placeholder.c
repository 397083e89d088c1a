/* A driver library that only needs to exist: a file with the right soname. */
int simgpu_placeholder(void)
{
	return 0;
}
