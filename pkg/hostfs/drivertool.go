package hostfs

import (
	"path/filepath"
	"slices"
	"strings"
)

// toolDirs are the directories of a driver root in which distributions and installers put programs.
var toolDirs = []string{
	"/usr/bin", "/bin", "/opt/bin", "/usr/sbin", "/sbin",
	"/usr/local/bin",                // Talos
	"/run/current-system/sw/bin",    // NixOS
	"/usr/libexec/nvidia/tesla/bin", // Bottlerocket
	"/usr/lib/wsl/lib",              // WSL
	"/",
}

// toolDirs returns the directories of this root that are searched for programs.
func (r DriverRoot) toolDirs() []string {
	return slices.Concat(strings.FieldsFunc(r.Search, func(c rune) bool { return c == ':' }), toolDirs)
}

// ToolDirs lists the directories of the root that Tool searches, for errors.
func (r DriverRoot) ToolDirs() string { return listed(r.toolDirs()) }

// Tool returns this process's path to a program of the driver installation, false if it does not exist.
func (r DriverRoot) Tool(name string) (string, bool) {
	for _, dir := range r.toolDirs() {
		// As for the library, absolute links refer to files inside the driver root.
		seen, err := resolveIn(r.Path, filepath.Join(dir, name))
		if err == nil && executable(seen) {
			return seen, true
		}
	}
	return "", false
}
