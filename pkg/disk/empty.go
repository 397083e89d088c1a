package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrManyEntries says that a directory has more entries than one call removes. The next call continues.
var ErrManyEntries = errors.New("the directory has more entries than one call removes")

// batch is the number of names of a directory that are read at once.
const batch = 1000

// Empty removes the content of a directory, at most limit entries; ErrManyEntries if there are more. It removes links without following
// them, and enters no other filesystem. It moves directories within a subdirectory up into dir before it empties the subdirectory, so only
// three files are open however deeply a writer nests them. before is called for each entry that is not a directory, with the entry's
// directory; nil is allowed.
func Empty(dir *os.File, limit int, before func(in *os.File, name string)) error {
	top, err := openFolder(int(dir.Fd()), ".")
	if err != nil {
		return err
	}
	defer top.Close()
	e := &emptying{top: top, left: limit, before: before}
	for {
		removed := e.left
		if _, err := top.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := e.each(top, e.fromTop); err != nil {
			return err
		}
		// A reader of the directory may have missed directories that were moved up meanwhile.
		if removed == e.left {
			return nil
		}
	}
}

// emptying is one call of Empty.
type emptying struct {
	top    *os.File
	left   int
	moved  int
	before func(in *os.File, name string)
}

// each calls remove for each entry of a directory, and counts.
func (e *emptying) each(dir *os.File, remove func(name string) error) error {
	for {
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if e.left <= 0 {
				return ErrManyEntries
			}
			e.left--
			if err := remove(name); err != nil {
				return err
			}
		}
	}
}

// fromTop removes an entry of the top directory.
func (e *emptying) fromTop(name string) error {
	empty, err := e.unlink(e.top, name)
	if err != nil || empty {
		return err
	}
	dir, err := openFolder(int(e.top.Fd()), name)
	if err != nil {
		return gone(err)
	}
	defer dir.Close()
	if err := e.each(dir, func(below string) error { return e.fromBelow(dir, below) }); err != nil {
		return err
	}
	_, err = e.unlink(e.top, name)
	return err
}

// fromBelow removes an entry of a subdirectory, or moves it up.
func (e *emptying) fromBelow(dir *os.File, name string) error {
	empty, err := e.unlink(dir, name)
	if err != nil || empty {
		return err
	}
	for {
		e.moved++
		err := unix.Renameat2(int(dir.Fd()), name, int(e.top.Fd()), ".removed-"+strconv.Itoa(e.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return gone(err)
		}
		if e.left--; e.left <= 0 {
			return ErrManyEntries
		}
	}
}

// unlink removes an entry, unless it is a directory that is not empty.
func (e *emptying) unlink(dir *os.File, name string) (done bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true, gone(err)
	}
	flags := 0
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	} else if e.before != nil {
		e.before(dir, name)
	}
	err = unix.Unlinkat(int(dir.Fd()), name, flags)
	switch {
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, nil
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return true, nil // a writer has replaced it: the next round finds the new entry
	case err != nil:
		return true, gone(fmt.Errorf("removing %s: %w", name, err))
	}
	return true, nil
}

// gone returns the error unless it says that the entry does not exist.
func gone(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// openFolder opens a subdirectory for reading.
func openFolder(in int, name string) (*os.File, error) {
	fd, err := unix.Openat2(in, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
