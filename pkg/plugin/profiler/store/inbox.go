package store

import (
	"os"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
)

// maxEntries is the maximum number of entries of an inbox, and of a session's folders, that a scan reads.
const maxEntries = 10000

// sessionPattern matches the name of a session's folder.
var sessionPattern = regexp.MustCompile(`^s[0-9]{1,10}-[0-9a-f]{16}$`)

// usage returns the number of bytes in an inbox. An inbox with more entries than the limit is full regardless of their sizes.
func usage(inbox *os.File) (bytes int64, crowded bool) {
	left := maxEntries
	return walk(inbox, 0, &left, func(*os.File, string, *unix.Stat_t) {}), left < 0
}

// maxDepth is the maximum depth of an inbox: a session contains a folder with a folder for temporary files.
const maxDepth = 8

// walk calls visit for everything below a folder, and returns the space that it occupies.
func walk(dir *os.File, depth int, left *int, visit func(*os.File, string, *unix.Stat_t)) (bytes int64) {
	again, err := untrusted.Folder(dir, ".")
	if err != nil {
		return 0
	}
	defer again.Close()
	names, more, _ := untrusted.Entries(again, max(*left, 0))
	*left -= len(names)
	if more || depth > maxDepth {
		*left = -1
	}
	for _, name := range names {
		f, st, err := untrusted.Entry(again, name)
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
