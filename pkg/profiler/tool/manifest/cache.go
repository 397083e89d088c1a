package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Cache lists the versions below a directory as List does, without the hashes of their files. It decodes a manifest only if the file has
// changed: a manifest contains hundreds of hashes, and every claim with a profile reads it. Use NewCache. It is safe for concurrent use.
type Cache struct {
	// Read reads the manifest in a directory.
	Read func(dir string) (Manifest, error)

	dir   string
	mu    sync.Mutex
	known map[string]known // by the directory of the version
}

// known is the cached state of a manifest.
type known struct {
	stamp stamp
	Manifest
	err error
}

// stamp changes with a file: Write replaces the file by rename.
type stamp struct {
	device, inode uint64
	size          int64
	modified      unix.Timespec
	changed       unix.Timespec
}

// NewCache returns a cache for a directory, which may be absent.
func NewCache(dir string) *Cache { return &Cache{Read: Read, dir: dir, known: map[string]known{}} }

// List returns the versions. Versions with an unreadable manifest are ignored.
func (c *Cache) List() (all []Installed, err error) {
	dirs, err := versions(c.dir)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[string]bool{}
	for _, dir := range dirs {
		there[dir] = true
		if m, err := c.of(dir); err == nil {
			all = append(all, Installed{Manifest: m, Dir: dir})
		}
	}
	maps.DeleteFunc(c.known, func(dir string, _ known) bool { return !there[dir] })
	return all, nil
}

// of returns the manifest in a directory. The stamp is taken before the file is read: if the file is replaced in between, the next call
// reads it again.
func (c *Cache) of(dir string) (Manifest, error) {
	now, err := stampOf(filepath.Join(dir, File))
	if err != nil {
		delete(c.known, dir)
		return Manifest{}, err
	}
	if k, ok := c.known[dir]; ok && k.stamp == now {
		return k.Manifest, k.err
	}
	m, err := c.Read(dir)
	m.Files = nil
	if _, of := errors.AsType[*fs.PathError](err); of {
		delete(c.known, dir) // the next read may succeed
		return m, err
	}
	c.known[dir] = known{now, m, err}
	return m, err
}

func stampOf(path string) (stamp, error) {
	var of unix.Stat_t
	if err := unix.Stat(path, &of); err != nil {
		return stamp{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return stamp{uint64(of.Dev), of.Ino, of.Size, of.Mtim, of.Ctim}, nil //nolint:unconvert // the device is signed on other systems
}

// versions returns the directories of installed versions below a directory, without unfinished installations.
func versions(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the installed versions of Nsight Systems: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), Unfinished) {
			all = append(all, filepath.Join(dir, entry.Name()))
		}
	}
	return all, nil
}
