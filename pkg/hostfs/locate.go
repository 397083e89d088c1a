package hostfs

import (
	"os"
	"path/filepath"
	"strings"
)

// Locate resolves a path like a program whose root directory is root, a directory of the host. It returns the result as a path of the host;
// false if nothing exists there.
func (f *FS) Locate(root, path string) (hostPath string, found bool) {
	below, err := f.resolve(root)
	if err != nil {
		return "", false
	}
	seen, err := resolveIn(below, path)
	if err != nil {
		return "", false
	}
	if _, err := os.Stat(seen); err != nil {
		return "", false
	}
	return filepath.Join("/", strings.TrimPrefix(seen, f.root)), true
}
