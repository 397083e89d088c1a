// Package disk reads and writes the plugin's own files: records, specs, hook binaries. Package hostfs reads the host's /proc, /sys and
// /dev.
//
// Consumers use the port Files, so that a test can count or refuse operations, or lose data that was not synced.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// OS implements Files on the real disk.
type OS struct{}

// Read returns the whole file; fs.ErrNotExist if it does not exist.
func (OS) Read(path string) ([]byte, error) { return os.ReadFile(path) }

// List returns the names of a directory's entries in lexical order; none if the directory does not exist.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Write creates or replaces the file in place. With durable set, the content but not the name is on stable storage when it returns: follow
// with Rename and SyncDir.
func (OS) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, perm)
	if err != nil {
		return err
	}
	// On close, ext4 writes out files that were truncated, also empty ones.
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil && durable {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Overwrite replaces the first bytes of an existing file, in place and durably. This needs no free space unless the filesystem copies on
// write. The rest of a longer file stays. If there is no space for data longer than the file, nothing is written. A power cut may leave a
// mix of old and new data.
func (OS) Overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(data)))
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("overwriting %s: %w", path, err)
	}
	return nil
}

// Create opens an empty file for writing and replaces an existing one; it follows no link.
func (OS) Create(path string, perm fs.FileMode) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, perm)
}

// Rename moves a file over another in one step.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// freeAfter is longer than a group of removals takes.
const freeAfter = 300 * time.Millisecond

// Remove deletes a file; no error if it does not exist. It frees the file's blocks a little later, because this takes longest on some
// filesystems, and the caller needs only the name to be gone.
func (OS) Remove(path string) error {
	f, openErr := os.Open(path)
	if openErr == nil {
		// An open file keeps its blocks.
		defer time.AfterFunc(freeAfter, func() { _ = f.Close() })
	}
	err := os.Remove(path)
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// SyncDir puts the directory's entries on stable storage: without it, a power cut may undo a rename or a removal.
func (OS) SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// MakeDir creates the directory with its parents. The directory itself gets the requested permissions, even if it exists.
func (OS) MakeDir(dir string, perm fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, perm)
}

// maxRemoved is the number of entries that one call of RemoveDir removes.
const maxRemoved = 200_000

// RemoveDir removes a directory with its content; no error if it does not exist. It removes links without following them, also if the
// directory itself is a link. A writer may create files meanwhile, so it tries up to removals times. ErrManyEntries: the directory has more
// entries than one call removes.
func (OS) RemoveDir(dir string) error {
	err := os.Remove(dir)
	if err == nil || os.IsNotExist(err) {
		return nil
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	return emptied(func() error {
		if err := Empty(f, maxRemoved, nil); err != nil {
			return fmt.Errorf("emptying %s: %w", dir, err)
		}
		return os.Remove(dir)
	})
}

// removals limits the attempts to remove a directory in which new files appear.
const removals = 3

// emptied calls remove, again if the directory got a new entry meanwhile.
func emptied(remove func() error) (err error) {
	for range removals {
		if err = remove(); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// Writer is the port of Replace.
type Writer interface {
	Write(path string, data []byte, perm fs.FileMode, durable bool) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
}

// TempSuffix ends the names of files that Replace has not finished. Readers skip them; the owner of the directory removes the ones that a
// crash left.
const TempSuffix = ".tmp"

// Replace writes data to path so that readers see the old or the new content, never a part. With durable set, the new content is on stable
// storage when it returns, at the cost of two fsyncs. After an error the old content stays, except after a failed SyncDir: then the new
// content is in place, but not durable.
func Replace(w Writer, path string, data []byte, perm fs.FileMode, durable bool) error {
	tmp := path + TempSuffix
	if err := w.Write(tmp, data, perm, durable); err != nil {
		_ = w.Remove(tmp)
		return fmt.Errorf("writing %s: %w", tmp, err)
	}
	if err := w.Rename(tmp, path); err != nil {
		_ = w.Remove(tmp)
		return fmt.Errorf("moving %s into place: %w", tmp, err)
	}
	if !durable {
		return nil
	}
	if err := w.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("syncing %s: %w", filepath.Dir(path), err)
	}
	return nil
}
