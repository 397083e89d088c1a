// Package disk does the plugin's own file work: records, specs, hook binaries. Reading the host's /proc, /sys and /dev is
// hostfs's.
//
// Consumers work on the port Files, so that a test can count, refuse, or lose what was not synced.
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

// OS is the real disk.
type OS struct{}

// Read returns the whole file; fs.ErrNotExist when there is none.
func (OS) Read(path string) ([]byte, error) { return os.ReadFile(path) }

// List names the entries of a directory in lexical order; none when the directory does not exist.
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

// Write makes or replaces the file in place. With durable set the content, not yet the name, is on stable storage when it
// returns: follow with Rename and SyncDir.
func (OS) Write(path string, data []byte, perm fs.FileMode, durable bool) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, perm)
	if err != nil {
		return err
	}
	// A file that was truncated, also an empty one, is written out by ext4 as it is closed.
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

// Overwrite replaces the first bytes of a file that is there, in place and durably: that needs no room where the filesystem does not copy
// on write. Data that is shorter leaves the rest as it was. Without room for longer data nothing is written. A power cut may leave a part
// of both.
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

// Create opens an empty file for writing, also where one was there; it follows no link.
func (OS) Create(path string, perm fs.FileMode) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, perm)
}

// Rename moves a file over another in one step.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// freeAfter is longer than the removals that come together take.
const freeAfter = 300 * time.Millisecond

// Remove deletes a file; no error when there is none. Its blocks are freed a little later, because some filesystems take
// longer for that than for everything else, and the caller waits for the name to go, not for the space to come back.
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

// SyncDir puts the directory's entries on stable storage: without it a rename or a removal may be undone by a power cut.
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

// MakeDir makes the directory with its parents; the directory itself gets the requested permissions, also when it was there.
func (OS) MakeDir(dir string, perm fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, perm)
}

// maxRemoved is how many entries a call of RemoveDir removes.
const maxRemoved = 200_000

// RemoveDir removes a directory with all that is in it; no error when there is none. Links in it are removed and not followed, and a link in
// its place is removed alone. A writer may make a file while it is emptied, so that is done again, up to removals times. ErrManyEntries says
// that more is there than one call removes.
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

// removals bounds how often a directory is removed in which files appear.
const removals = 3

// emptied removes a directory, again where it got an entry meanwhile.
func emptied(remove func() error) (err error) {
	for range removals {
		if err = remove(); !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return err
}

// Writer is what Replace needs of a disk.
type Writer interface {
	Write(path string, data []byte, perm fs.FileMode, durable bool) error
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
}

// TempSuffix ends the names of files that Replace has not finished. Readers skip them; the owner of the directory removes
// those that a crash left.
const TempSuffix = ".tmp"

// Replace puts data under path so that a reader sees the old or the new content, never a part. With durable set the new one
// is on stable storage when it returns, at the price of two fsyncs. On an error the old content stands, except that a failed
// SyncDir leaves the new one in place, not yet durable.
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
