package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CharDevices lists the host's character devices in dir whose names match the pattern of path.Match, sorted by name. The list is empty if
// the directory does not exist. Other types of files are left out.
func (f *FS) CharDevices(dir, pattern string) ([]CharDevice, error) {
	seen, err := f.resolve(dir)
	if err != nil {
		return nil, fmt.Errorf("listing device nodes in %s: %w", dir, err)
	}
	entries, err := os.ReadDir(seen)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing device nodes in %w", hostError(dir, err))
	}
	var found []CharDevice
	for _, entry := range entries {
		matches, err := filepath.Match(pattern, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("listing device nodes %s in %s: %w", pattern, dir, err)
		}
		if !matches || entry.Type()&os.ModeCharDevice == 0 {
			continue
		}
		device, err := f.CharDevice(filepath.Join(dir, entry.Name()))
		if errors.Is(err, gpu.ErrNotFound) {
			continue // it was removed in the meantime
		}
		if err != nil {
			return nil, err
		}
		found = append(found, device)
	}
	return found, nil
}
