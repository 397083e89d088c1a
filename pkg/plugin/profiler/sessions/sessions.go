// Package sessions lists the processes of the node that wait to be recorded, and passes them commands: a file for each command, which the
// process's prism-run reads and answers.
package sessions

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/store"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// scanEvery is the minimum time between two scans of a claim. Nothing is scanned without a request.
const scanEvery = time.Second

const (
	// maxEntries is the number of entries of a claim's folder that are read, scanBytes the number of bytes of its notes and answers in a scan.
	maxEntries, scanBytes = 10000, 2 << 20
	// maxNamespace is the number of listed sessions of a namespace.
	maxNamespace = 1024
)

// bounds limit the work for containers, which may create any number of folders with any content.
type bounds struct {
	// entries is the number of entries of an inbox, claim the number of sessions of a claim, and namespace of all claims of a namespace.
	entries, claim, namespace int
	// bytes is the number of bytes of notes and answers of a claim that a scan reads.
	bytes int64
}

// Options are the settings of a Store.
type Options struct {
	Files disk.Files
	Now   func() time.Time
	// Prepared returns the prepared claims of a namespace, or of all for "". With the UID of the namespace, it omits claims of other
	// namespaces of that name.
	Prepared func(namespace, namespaceUID string) []store.Prepared
	// Leads returns store.ErrFollowing if another process of the node writes.
	Leads func() error
	// Arm returns the function for the claims of one command that makes a claim select processes, or no more processes; fs.ErrNotExist if it
	// is no longer prepared.
	Arm func(armed bool) (func(claimUID string) error, error)
	// MaxDuration returns the maximum length of a recording; nil or 0: session.MaxDuration.
	MaxDuration func() time.Duration
	// Failed is called with the error if a command of a claim could not be written or removed.
	Failed func(claimUID string, err error)
}

// Store lists the sessions of the node, and passes commands to them. It is safe for concurrent use.
type Store struct {
	Options
	bounds bounds
	// answered are the answers to commands.
	answered answered

	mu     sync.Mutex
	claims map[string]*claim // by key
}

// key returns the key of a claim: its containers and prism-collector have different sessions.
func key(of store.Prepared) string {
	if of.Counters {
		return of.UID + "/counters"
	}
	return of.UID
}

// claim contains the sessions of a claim.
type claim struct {
	mu sync.Mutex
	of store.Prepared
	// scanned is the time of the last scan, sessions its result by folder.
	scanned  time.Time
	sessions map[string]*waiting
	// commands are the last commands by folder. owned: no other process writes commands.
	commands map[string]*command
	owned    bool
}

// New returns a Store. It reads nothing.
func New(o Options) *Store {
	return &Store{Options: o, bounds: bounds{entries: maxEntries, claim: store.MaxWaits, namespace: maxNamespace, bytes: scanBytes}, claims: map[string]*claim{}}
}

// List returns the sessions of a namespace, or of all for "".
func (s *Store) List(namespace, namespaceUID string) []session.Session {
	all := []session.Session{}
	s.visit(namespace, namespaceUID, func(c *claim, folder string) {
		all = append(all, c.session(folder, s.Now()))
	})
	return all
}

// Claims returns the prepared claims of a namespace, or of all for "", that are armed on demand.
func (s *Store) Claims(namespace, namespaceUID string) (all []session.Claim) {
	listed := map[string]int{}
	for _, of := range s.Prepared(namespace, namespaceUID) {
		if of.ByHand.OnDemand && listed[of.Namespace] < s.bounds.namespace {
			listed[of.Namespace]++
			all = append(all, session.Claim{Claim: of.Name, ClaimUID: of.UID, Namespace: of.Namespace, NamespaceUID: of.NamespaceUID, Armed: of.Armed})
		}
	}
	return all
}

// Sweep removes the files of commands that are answered or too old, and forgets claims that are no longer prepared.
func (s *Store) Sweep() {
	prepared := map[string]bool{}
	for _, of := range s.Prepared("", "") {
		prepared[key(of)] = true
		if !of.ByHand.Waits {
			continue
		}
		c := s.lock(of)
		if !c.owned || c.hasFiles() {
			s.scan(c)
		}
		c.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.claims, func(key string, _ *claim) bool { return !prepared[key] })
}

// hasFiles reports whether there are files of commands.
func (c *claim) hasFiles() bool {
	for _, of := range c.commands {
		if of.written {
			return true
		}
	}
	return false
}

// visit calls do for each session of a namespace, up to the limits, while its claim is locked. It omits a container's session with the name
// of a session of prism-collector: names are no secret, and a container may use them.
func (s *Store) visit(namespace, namespaceUID string, do func(c *claim, folder string)) {
	visited := map[string]int{}
	var counters map[string]*waiting // the sessions of prism-collector
	var uid string                   // of their claim
	for _, of := range s.Prepared(namespace, namespaceUID) {
		if !of.ByHand.Waits {
			continue
		}
		c := s.lock(of)
		s.scan(c)
		if of.Counters {
			counters, uid = c.sessions, of.UID
		}
		for _, folder := range slices.Sorted(maps.Keys(c.sessions)) {
			if counters[folder] != nil && uid == of.UID && !of.Counters {
				continue
			}
			if visited[of.Namespace]++; visited[of.Namespace] <= s.bounds.namespace {
				do(c, folder)
			}
		}
		c.mu.Unlock()
	}
}

// lock returns a claim, which the caller unlocks.
func (s *Store) lock(of store.Prepared) *claim {
	s.mu.Lock()
	c := s.claims[key(of)]
	if c == nil {
		c = &claim{}
		s.claims[key(of)] = c
	}
	s.mu.Unlock()
	c.mu.Lock()
	c.of = of
	return c
}
