package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxEntries is the maximum number of entries of an inbox, and of a session's folders, that a scan reads.
const maxEntries = 10000

// sessionPattern matches the name of a session's folder.
var sessionPattern = regexp.MustCompile(`^s[0-9]{1,10}-[0-9a-f]{16}$`)

// errKind: the file of an inbox has another type, or several links, and is not read.
var errKind = errors.New("not a regular file with exactly one link")

// openDir opens a folder of the store itself.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// within opens the inode of an entry of a folder, without opening a device or waiting for a pipe.
func within(dir *os.File, name string) (*os.File, *unix.Stat_t, error) {
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

// folderWithin opens a folder in a folder.
func folderWithin(dir *os.File, name string) (*os.File, error) {
	f, st, err := within(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, fmt.Errorf("%s: not a directory", name)
	}
	return reopen(f, unix.O_RDONLY|unix.O_DIRECTORY)
}

// fileWithin opens a regular file in a folder.
func fileWithin(dir *os.File, name string, flags int) (*os.File, *unix.Stat_t, error) {
	f, st, err := within(dir, name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return nil, nil, fmt.Errorf("%s: %w", name, errKind)
	}
	opened, err := reopen(f, flags)
	return opened, st, err
}

// reopen opens the inode of a file that was opened with O_PATH.
func reopen(f *os.File, flags int) (*os.File, error) {
	fd, err := unix.Open(inode(f), flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// inode returns a path to the inode of an open file, even if the file was renamed.
func inode(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// entries lists a folder, up to a limit; more reports whether there are others.
func entries(dir *os.File, limit int) (names []string, more bool, err error) {
	names, err = dir.Readdirnames(limit + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if len(names) > limit {
		return names[:limit], true, err
	}
	return names, false, err
}

// usage returns the number of bytes in an inbox. An inbox with more entries than the limit is full regardless of their sizes.
func usage(inbox *os.File) (bytes int64, crowded bool) {
	left := maxEntries
	return walk(inbox, 0, &left, func(*os.File, string, *unix.Stat_t) {}), left < 0
}

// maxDepth is the maximum depth of an inbox: a session contains a folder with a folder for temporary files.
const maxDepth = 8

// walk calls visit for everything below a folder, and returns the space that it occupies.
func walk(dir *os.File, depth int, left *int, visit func(*os.File, string, *unix.Stat_t)) (bytes int64) {
	again, err := folderWithin(dir, ".")
	if err != nil {
		return 0
	}
	defer again.Close()
	names, more, _ := entries(again, max(*left, 0))
	*left -= len(names)
	if more || depth > maxDepth {
		*left = -1
	}
	for _, name := range names {
		f, st, err := within(again, name)
		if err != nil {
			continue
		}
		bytes += st.Blocks * 512
		if st.Mode&unix.S_IFMT == unix.S_IFDIR && *left >= 0 {
			bytes += walk(f, depth+1, left, visit)
		}
		visit(again, name, st)
		_ = f.Close()
	}
	return bytes
}
