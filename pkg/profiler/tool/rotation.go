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

// rotationFile has when claims had a file imported last, in the directory of tries: a file that ends the container does not make its claim
// the first one again.
const rotationFile = ".rotation"

// rotation has the numbers of the last imports of claims and namespaces, by key.
type rotation map[string]int64

func (w waiting) claimKey() string { return "claim/" + filepath.Base(filepath.Dir(w.dir)) }

func (w waiting) namespaceKey() string { return "namespace/" + w.namespace }

// first is the file to import now. It is of the namespace whose last import is longest ago, and of such a claim in there: a tenant with many
// files, or with files that take long, delays the others by one file at a time. Of a claim, what was tried less often goes first, then
// smaller files.
func (t rotation) first(all []waiting) waiting {
	return slices.MinFunc(all, func(a, b waiting) int {
		return cmp.Or(
			cmp.Compare(t[a.namespaceKey()], t[b.namespaceKey()]), cmp.Compare(t[a.claimKey()], t[b.claimKey()]),
			cmp.Compare(a.tries, b.tries), cmp.Compare(a.size, b.size), cmp.Compare(a.id, b.id),
		)
	})
}

// take notes that a file is imported now. What is known of claims that have none waiting stays, up to maxRotation: a claim that has one file
// at a time would else be the first one each time.
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

// maxRotation bounds what is kept: more than a node has claims.
const maxRotation = 4096

// rotation reads what is known; a file that is damaged is as none.
func (s Spool) rotation() rotation {
	known := rotation{}
	raw, err := os.ReadFile(filepath.Join(s.Tries, rotationFile))
	if err != nil || json.Unmarshal(raw, &known) != nil || known == nil {
		return rotation{}
	}
	return known
}

// advance notes that a file is imported now.
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

// progressEvery is how often the files that wait are marked while one is imported.
const progressEvery = time.Minute

// progress marks the files that wait, now and until done is closed: the plugin gives a raw file up that no importer made progress for, by the
// time of the file. An import may take as long as the chart allows, and one that fails leaves nothing that the plugin sees.
func (s Spool) progress(done <-chan struct{}) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		waiting, _ := s.waiting() // Run reports what cannot be read
		now := time.Now()
		for _, w := range waiting {
			_ = os.Chtimes(filepath.Join(w.dir, w.id+rawSuffix), time.Time{}, now) // it may be gone
		}
		select {
		case <-done:
			return
		case <-ticker.C:
		}
	}
}
