package sessions

import (
	"slices"
	"sync"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// maxAnswers is the maximum number of answers that are kept, maxNamespaceAnswers of a namespace. For an id whose answer is forgotten, the
// sessions that it was passed on to still count as accepted.
const maxAnswers, maxNamespaceAnswers = 256, 32

// answered contains the answers to the last commands. The zero value is empty.
type answered struct {
	mu   sync.Mutex
	kept []*answer // the least recently requested first
}

// answer is the answer to a command, once it is carried out.
type answer struct {
	namespace, id string

	mu       sync.Mutex
	accepted *session.Accepted
}

// of returns the answer to a command, which the caller locks: a request of the same id waits.
func (a *answered) of(namespace, id string) *answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := func(one *answer) bool { return one.namespace == namespace && one.id == id }
	of := &answer{namespace: namespace, id: id}
	if i := slices.IndexFunc(a.kept, is); i >= 0 {
		of = a.kept[i]
		a.kept = slices.Delete(a.kept, i, i+1)
	}
	a.kept = append(a.kept, of)
	same := func(one *answer) bool { return one.namespace == namespace }
	count := 0
	for _, one := range a.kept {
		if same(one) {
			count++
		}
	}
	switch {
	case count > maxNamespaceAnswers:
		i := slices.IndexFunc(a.kept, same)
		a.kept = slices.Delete(a.kept, i, i+1)
	case len(a.kept) > maxAnswers:
		a.kept = slices.Delete(a.kept, 0, 1)
	}
	return of
}
