package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	traversableByOthers = 0o001
	writableByGroup     = 0o020
	writableByOthers    = 0o002
)

// CheckPrograms checks the directory of a program that the container runtime executes, and all directories above it up to the host's root:
// users other than root must be able to traverse them, because in a user namespace the program runs as such a user, and only root may
// change their entries. The error joins one sentence per violation; gpu.ErrNotFound: no directory exists at the path.
func (f *FS) CheckPrograms(dir string) error {
	seen, err := f.resolve(dir)
	if err != nil {
		return err
	}
	var problems []error
	for {
		onHost, err := filepath.Rel(f.root, seen)
		if err != nil {
			return fmt.Errorf("finding %s on the host: %w", seen, err)
		}
		problems = append(problems, checkDirectory(seen, filepath.Join("/", onHost)))
		if onHost == "." {
			return errors.Join(problems...)
		}
		seen = filepath.Dir(seen)
	}
}

// checkDirectory checks one directory; onHost is its path in errors.
func checkDirectory(seen, onHost string) error {
	info, err := os.Stat(seen)
	if err != nil {
		return hostError(onHost, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok {
		return fmt.Errorf("%s is not a directory: %w", onHost, gpu.ErrNotFound)
	}
	mode := info.Mode()
	var problems []error
	if mode&traversableByOthers == 0 {
		problems = append(problems, fmt.Errorf("users other than root cannot traverse %s (mode %04o)", onHost, mode.Perm()))
	}
	// In a directory with the sticky bit, other users can add entries but not replace entries of root.
	shared := mode&fs.ModeSticky == 0 && (mode&writableByOthers != 0 || mode&writableByGroup != 0 && stat.Gid != 0)
	if foreign := stat.Uid != 0 && int(stat.Uid) != os.Geteuid(); shared || foreign {
		problems = append(problems, fmt.Errorf("users other than root can change %s (owner %d:%d, mode %04o)", onHost, stat.Uid, stat.Gid, mode.Perm()))
	}
	return errors.Join(problems...)
}
