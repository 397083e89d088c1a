/* libcuda far enough for programs that ask whether there is a driver. */
enum { CUDA_SUCCESS = 0, CUDA_INVALID_VALUE = 1, CUDA_NO_DEVICE = 100 };

int cuInit(unsigned int flags)
{
	return flags ? CUDA_INVALID_VALUE : CUDA_NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_INVALID_VALUE;
	*version = SIMGPU_CUDA;
	return CUDA_SUCCESS;
}
