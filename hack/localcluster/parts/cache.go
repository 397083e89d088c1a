package parts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Cache is the folder of built parts and images. Its content can be deleted while no cluster runs.
type Cache struct {
	Dir string
}

// OpenCache returns $XDG_CACHE_HOME/prism or ~/.cache/prism, which it creates if it is missing.
func OpenCache() (Cache, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("finding the cache directory: %w: set HOME or XDG_CACHE_HOME", err)
	}
	cache := Cache{Dir: filepath.Join(base, "prism")}
	if err := os.MkdirAll(cache.Dir, 0o755); err != nil {
		return Cache{}, fmt.Errorf("making the cache directory: %w", err)
	}
	return cache, nil
}

// Part is the folder of the part's programs, built or not.
func (c Cache) Part(r Recipe) string {
	return filepath.Join(c.Dir, "parts", r.Key())
}

// Has reports whether the entry at path was completed.
func (c Cache) Has(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Fill creates the entry at path (below the cache's folder) by calling build with an empty folder that becomes the entry if build succeeds.
// Only one process builds an entry; the others wait for it and find it there.
func (c Cache) Fill(path string, build func(dir string) error) error {
	if c.Has(path) {
		return nil
	}
	unlock, err := c.lock(filepath.Base(path))
	if err != nil {
		return err
	}
	defer unlock()
	if c.Has(path) {
		return nil
	}
	// The lock reserves the name, so leftovers of a killed build are removed here.
	dir := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := emptyFolder(dir); err != nil {
		return fmt.Errorf("making room for %s in the cache: %w", filepath.Base(path), err)
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("putting %s into the cache: %w", filepath.Base(path), err)
	}
	return nil
}

func emptyFolder(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

func (c Cache) lock(name string) (unlock func(), err error) {
	unlock, _, err = c.flock(name, syscall.LOCK_EX)
	return unlock, err
}

// tryLock does not wait: free is false while another process or goroutine holds the lock.
func (c Cache) tryLock(name string) (unlock func(), free bool, err error) {
	return c.flock(name, syscall.LOCK_EX|syscall.LOCK_NB)
}

func (c Cache) flock(name string, how int) (unlock func(), free bool, err error) {
	dir := filepath.Join(c.Dir, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, false, fmt.Errorf("locking %s in the cache: %w", name, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("locking %s in the cache: %w", name, err)
	}
	err = syscall.Flock(int(file.Fd()), how)
	if err == nil {
		return func() { file.Close() }, true, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("locking %s in the cache: %w", name, err)
}

// CheckSpace returns an error if the file system of dir has less than need bytes free. variable is the variable that moves dir elsewhere.
func CheckSpace(dir string, need uint64, variable string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	const gib = 1 << 30
	if free := stat.Bavail * uint64(stat.Bsize); free < need {
		return fmt.Errorf("%s has %.1f GiB free and %.1f GiB are needed: free some space or set %s to another disk",
			dir, float64(free)/gib, float64(need)/gib, variable)
	}
	return nil
}
