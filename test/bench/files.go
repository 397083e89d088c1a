package bench

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files is what is done to the files below some directories, in numbers that do not depend on the machine.
type Files struct {
	// Opened are files opened to be read or synced, whether they were there or not; Bytes is what was read.
	Opened, Bytes int
	// Listed are directories read to their end.
	Listed int
	// Changed are files opened to be written, moved and removed, Synced those put on stable storage, directories included.
	Changed, Synced int
}

func (f Files) plus(other Files) Files {
	return Files{
		Opened: f.Opened + other.Opened, Bytes: f.Bytes + other.Bytes, Listed: f.Listed + other.Listed,
		Changed: f.Changed + other.Changed, Synced: f.Synced + other.Synced,
	}
}

// paths finds the files that a call names: behind a descriptor that comes first, or between quotes.
var paths = regexp.MustCompile(`^\d+<([^>]*)>|"([^"]*)"`)

// filesBelow counts what the calls did to the directories and to the files below them.
func filesBelow(calls []Syscall, dirs ...string) Files {
	below := slices.Clone(dirs)
	for _, dir := range dirs {
		// The kernel names what a descriptor stands for without symbolic links.
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			below = append(below, real)
		}
	}
	var f Files
	for _, call := range calls {
		if slices.ContainsFunc(paths.FindAllStringSubmatch(call.Arguments, -1), func(m []string) bool { return isBelow(m[1]+m[2], below) }) {
			f.add(call)
		}
	}
	return f
}

// isBelow reports whether the path is one of the directories, or below one.
func isBelow(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// add counts one call. What is written into a file is counted when the file is opened for that, and so is a directory when it
// is listed.
func (f *Files) add(call Syscall) {
	switch call.Name {
	case "open", "openat", "openat2":
		switch {
		case strings.Contains(call.Arguments, "O_WRONLY"), strings.Contains(call.Arguments, "O_RDWR"):
			f.Changed++
		case !strings.Contains(call.Arguments, "O_DIRECTORY"):
			f.Opened++
		}
	case "read", "readv", "pread64", "preadv", "preadv2":
		f.Bytes += max(call.Result, 0)
	case "getdents", "getdents64":
		if call.Result == 0 {
			f.Listed++
		}
	case "creat", "truncate", "ftruncate", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
		"unlink", "unlinkat", "mkdir", "mkdirat", "rmdir":
		f.Changed++
	case "fsync", "fdatasync", "sync_file_range":
		f.Synced++
	}
}
