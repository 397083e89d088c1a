package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Sockets lists the host's sockets in dir whose names match the pattern of path.Match, sorted. The list is empty if the directory does not
// exist.
func (f *FS) Sockets(dir, pattern string) ([]string, error) {
	seen, err := f.resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("listing sockets in %s: %w", dir, err)
	}
	entries, err := os.ReadDir(seen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing sockets in %w", hostError(dir, err))
	}
	var found []string
	for _, entry := range entries {
		matches, err := filepath.Match(pattern, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("listing sockets %s in %s: %w", pattern, dir, err)
		}
		if matches && entry.Type()&fs.ModeSocket != 0 {
			found = append(found, filepath.Join(dir, entry.Name()))
		}
	}
	return found, nil
}
