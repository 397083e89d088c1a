// Package untrusted reads the folders that containers write: it follows no link, opens no device, waits for no process, and limits the
// bytes that it reads. Containers may change everything at any time.
package untrusted

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrKind is the error of a file of another type, or with several links, which is not read.
var ErrKind = errors.New("not a regular file with exactly one link")

// Open opens a folder of the plugin itself.
func Open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Entry opens the inode of an entry of a folder, without opening a device or waiting for a pipe.
func Entry(dir *os.File, name string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, nil, &os.PathError{Op: "openat2", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, &st, nil
}

// Folder opens a folder in a folder.
func Folder(dir *os.File, name string) (*os.File, error) {
	f, st, err := Entry(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, fmt.Errorf("%s: not a directory", name)
	}
	return Reopen(f, unix.O_RDONLY|unix.O_DIRECTORY)
}

// File opens a regular file in a folder.
func File(dir *os.File, name string, flags int) (*os.File, *unix.Stat_t, error) {
	f, st, err := Entry(dir, name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return nil, nil, fmt.Errorf("%s: %w", name, ErrKind)
	}
	opened, err := Reopen(f, flags)
	return opened, st, err
}

// Reopen opens the inode of a file that was opened by Entry.
func Reopen(f *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open(Inode(f), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Inode returns a path to the inode of an open file, even if the file was renamed.
func Inode(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// Entries lists a folder, up to a limit; more reports whether there are others.
func Entries(dir *os.File, limit int) (names []string, more bool, err error) {
	names, err = dir.Readdirnames(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(names) > limit {
		return names[:limit], true, err
	}
	return names, false, err
}

// Rest is the time that an unlocked note must be unchanged before its process counts as ended: a supervisor creates it before it locks it.
const Rest = 5 * time.Second

// Fresh reports whether a file has changed within Rest: a process may be about to lock it, or change it again within the same clock tick.
func Fresh(st *unix.Stat_t, now time.Time) bool { return now.Sub(time.Unix(st.Ctim.Unix())) < Rest }

// Locked reports whether a process holds a lock on a file.
func Locked(f *os.File) bool {
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Stamp changes with the content of a file, unless it changes twice within one tick of the clock.
type Stamp struct {
	inode        uint64
	size         int64
	mtime, ctime unix.Timespec
}

// StampOf returns the stamp of a file.
func StampOf(st *unix.Stat_t) Stamp { return Stamp{st.Ino, st.Size, st.Mtim, st.Ctim} }
