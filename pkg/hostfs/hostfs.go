package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// FS is the host's file tree. It is stateless and safe for concurrent use.
type FS struct {
	root string
	// search lists further directories of driver roots.
	search []string
}

// New returns the host's file tree, mounted at root in this process. It searches for libraries and programs of a driver first in the
// directories search of the driver's root, then in the usual ones.
func New(root string, search ...string) *FS {
	return &FS{root: filepath.Clean(root), search: search}
}

// bootIDFile contains a different ID after each boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// BootID returns the kernel's ID of this boot.
func (f *FS) BootID() (string, error) {
	raw, err := f.read(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", fmt.Errorf("reading the boot id: %s is empty", bootIDFile)
	}
	return id, nil
}

// read returns the content of the host's file at path.
func (f *FS) read(path string) ([]byte, error) {
	seen, err := f.resolve(path)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(seen)
	if err != nil {
		return nil, hostError(path, err)
	}
	return raw, nil
}

// Resolve converts a path of the host to a path of this process. All links, also absolute ones, are followed inside the root. Missing
// components are kept.
func (f *FS) Resolve(path string) (string, error) { return f.resolve(path) }

// resolve converts a path of the host to a path of this process. All links are followed inside the root. Missing components are kept.
func (f *FS) resolve(path string) (string, error) {
	return resolveIn(f.root, path)
}

// resolveIn resolves path with root as the root of the file tree.
func resolveIn(root, path string) (string, error) {
	seen, err := securejoin.SecureJoin(root, path)
	if err != nil {
		return "", fmt.Errorf("resolving %s below %s: %w", path, root, err)
	}
	return seen, nil
}

// hostError replaces the path in a file error with the host's path. For a missing file it returns gpu.ErrNotFound.
func hostError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, gpu.ErrNotFound)
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
