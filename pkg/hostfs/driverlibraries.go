package hostfs

import (
	"os"
	"path/filepath"
	"strings"
)

// nvidiaLibraries are the prefixes of the driver's libraries, for an installation whose library names contain no version.
var nvidiaLibraries = []string{"libcuda.", "libcudadebugger.", "libnvidia-", "libnvcuvid."}

// Libraries returns the driver's libraries by file name, links included, and for each the path of the file in this process. It returns the
// libraries with the driver's version in the directory of the NVML library: other libraries there do not belong to the driver.
func (r DriverRoot) Libraries() (map[string]string, error) {
	dir := filepath.Dir(r.Library)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, hostError(dir, err)
	}
	inside, err := filepath.Rel(r.Path, dir)
	if err != nil {
		return nil, hostError(dir, err)
	}
	libraries := map[string]string{}
	for _, entry := range entries {
		seen, err := resolveIn(r.Path, filepath.Join(inside, entry.Name()))
		if err != nil || !r.isLibrary(entry.Name(), filepath.Base(seen)) {
			continue
		}
		if info, err := os.Stat(seen); err == nil && info.Mode().IsRegular() {
			libraries[entry.Name()] = seen
		}
	}
	return libraries, nil
}

// isLibrary reports whether a name in the directory, which resolves to a file, is one of the driver's libraries.
func (r DriverRoot) isLibrary(name, file string) bool {
	if r.Version != "" {
		return strings.HasPrefix(name, "lib") && strings.HasSuffix(file, ".so."+r.Version)
	}
	for _, prefix := range nvidiaLibraries {
		if strings.HasPrefix(name, prefix) && strings.Contains(name, ".so") {
			return true
		}
	}
	return false
}
