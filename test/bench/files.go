package bench

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files counts operations on the files below some directories. The numbers do not depend on the machine.
type Files struct {
	// Opened counts files opened to read or sync them, existing or not; Bytes is the number of bytes read.
	Opened, Bytes int
	// Listed counts directories read to their end.
	Listed int
	// Changed counts files opened to write them, moved and removed; Synced counts files and directories put on stable storage.
	Changed, Synced int
}

// paths matches the files that a call names: after a descriptor at the beginning, or between quotes.
var paths = regexp.MustCompile(`^\d+<([^>]*)>|"([^"]*)"`)

// filesBelow counts the operations of the calls on the directories and on the files below them.
func filesBelow(calls []Syscall, dirs ...string) Files {
	below := slices.Clone(dirs)
	for _, dir := range dirs {
		// The kernel reports the path of a descriptor without symbolic links.
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

// add counts one call. A write counts when the call opens the file for writing, and a listing when the call opens the directory.
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
