package hostfs

import "path/filepath"

// toolDirs are the directories of a driver root in which distributions and installers put programs.
var toolDirs = []string{"/usr/bin", "/bin", "/opt/bin", "/"}

// Tool returns a program of this driver installation as this process sees it, false when there is none.
func (r DriverRoot) Tool(name string) (string, bool) {
	for _, dir := range toolDirs {
		// As for the library: absolute links mean files inside the driver root.
		seen, err := resolveIn(r.Path, filepath.Join(dir, name))
		if err == nil && executable(seen) {
			return seen, true
		}
	}
	return "", false
}
