package hostfs

import "path/filepath"

// toolDirs are the directories of a driver root where distributions and installers put programs.
var toolDirs = []string{"/usr/bin", "/bin", "/opt/bin", "/usr/sbin", "/sbin", "/"}

// Tool returns this process's path of a program of the driver installation, false without one.
func (r DriverRoot) Tool(name string) (string, bool) {
	for _, dir := range toolDirs {
		// As for the library, absolute links refer to files inside the driver root.
		seen, err := resolveIn(r.Path, filepath.Join(dir, name))
		if err == nil && executable(seen) {
			return seen, true
		}
	}
	return "", false
}
