// An auditor of the loader that has nothing to say.
unsigned int la_version(unsigned int version)
{
	return version;
}
