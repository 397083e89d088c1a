package tool

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// rotationFile stores the order of the claims' last imports, in the directory of tries: after a file that terminated the container, its
// claim is not the first one again.
const rotationFile = ".rotation"

// rotation contains the numbers of the last imports of claims and namespaces, by key.
type rotation map[string]int64

func (w waiting) claimKey() string { return "claim/" + filepath.Base(filepath.Dir(w.dir)) }

func (w waiting) namespaceKey() string { return "namespace/" + w.namespace }

// first returns the file to import now. It belongs to the namespace whose last import is the longest ago, and to such a claim in the
// namespace: a tenant with many files, or with files that take long, delays the others by one file at a time. Within a claim, files with
// fewer tries go first, then smaller files.
func (t rotation) first(all []waiting) waiting {
	return slices.MinFunc(all, func(a, b waiting) int {
		return cmp.Or(
			cmp.Compare(t[a.namespaceKey()], t[b.namespaceKey()]), cmp.Compare(t[a.claimKey()], t[b.claimKey()]),
			cmp.Compare(a.tries, b.tries), cmp.Compare(a.size, b.size), cmp.Compare(a.id, b.id),
		)
	})
}

// take records that a file is imported now. Entries of claims without waiting files are kept, up to maxRotation: otherwise a claim with one
// file at a time would be first each time.
func (t rotation) take(w waiting) {
	last := int64(0)
	for _, number := range t {
		last = max(last, number)
	}
	t[w.claimKey()], t[w.namespaceKey()] = last+1, last+1
	if len(t) > maxRotation {
		oldest := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Compare(t[a], t[b]) })
		for _, key := range oldest[:len(t)-maxRotation] {
			delete(t, key)
		}
	}
}

// maxRotation limits the entries: it exceeds the number of claims of a node.
const maxRotation = 4096

// rotation reads the file; a damaged file counts as empty.
func (s Spool) rotation() rotation {
	known := rotation{}
	raw, err := os.ReadFile(filepath.Join(s.Tries, rotationFile))
	if err != nil || json.Unmarshal(raw, &known) != nil || known == nil {
		return rotation{}
	}
	return known
}

// advance stores that a file is imported now.
func (s Spool) advance(w waiting) error {
	known := s.rotation()
	known.take(w)
	raw, err := json.Marshal(known)
	if err != nil {
		return err
	}
	path := filepath.Join(s.Tries, rotationFile)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// progressEvery is the interval at which waiting files are marked during an import.
const progressEvery = time.Minute

// progress marks the waiting files, now and until done is closed: the plugin gives up a raw file if, by the time of the file, no importer
// makes progress. An import may take as long as the chart allows, and a failed import leaves nothing that the plugin sees.
func (s Spool) progress(done <-chan struct{}) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		waiting, _ := s.waiting() // Run reports the error
		now := time.Now()
		for _, w := range waiting {
			_ = os.Chtimes(filepath.Join(w.dir, w.id+rawSuffix), time.Time{}, now) // it may have been removed
		}
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}
