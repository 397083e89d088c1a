// An auditor of the loader without output.
unsigned int la_version(unsigned int version)
{
	return version;
}
