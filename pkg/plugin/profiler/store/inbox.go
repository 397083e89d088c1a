package store

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
)

// maxEntries is the maximum number of entries of an inbox, and of a session's folders, that a scan reads.
const maxEntries = 10000

// sessionPattern matches the name of a session's folder.
var sessionPattern = regexp.MustCompile(`^s[0-9]{1,10}-[0-9a-f]{16}$`)

// inbox is an inbox of a claim in a scan.
type inbox struct {
	dir  *os.File
	path string
	// names are its entries; more: there may be others.
	names []string
	more  bool
	// over are the folders to discard once the index is written, cancelled the folders of recordings that were cancelled.
	over, cancelled []string
}

// inboxes opens the inboxes of a claim; none if its folder is missing. In the inbox of its containers, it omits entries of the same name as
// one of prism-collector's: the names of recordings are no secret, and a container may use them.
func (s *Store) inboxes(uid string) (all []*inbox, err error) {
	s.mu.Lock()
	c := s.claims[uid]
	folders := s.allFolders(uid, c != nil && c.collector)
	s.mu.Unlock()
	for i, of := range folders {
		dir, openErr := untrusted.Open(of.Inbox)
		missing := errors.Is(openErr, fs.ErrNotExist)
		switch {
		case missing && i < len(folders)-1:
			continue // the collector's was removed
		case openErr != nil:
			closeInboxes(all)
			if missing {
				openErr = nil
			}
			return nil, openErr
		}
		names, more, listErr := untrusted.Entries(dir, maxEntries)
		err = errors.Join(err, listErr)
		for _, first := range all {
			names = without(names, first.names)
		}
		all = append(all, &inbox{dir: dir, path: of.Inbox, names: names, more: more || listErr != nil})
	}
	return all, err
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	is := make(map[string]bool, len(others))
	for _, name := range others {
		is[name] = true
	}
	return slices.DeleteFunc(names, func(name string) bool { return is[name] })
}

func closeInboxes(all []*inbox) {
	for _, in := range all {
		_ = in.dir.Close()
	}
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
