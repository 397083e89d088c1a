package hostfs

import (
	"os"
	"path/filepath"
	"strings"
)

// Locate returns the host's path of what path means to a program whose root is the host's directory root, links resolved; false where
// there is nothing.
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
