package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// The entries of the folder of a claim.
const (
	planDir    = "plan"
	inboxDir   = "inbox"
	reportsDir = "reports"
	spoolDir   = "spool"
	indexFile  = "index.json"
	stopFile   = "stop"
	// damagedFile is the new name of an index that was unreadable when its claim was prepared.
	damagedFile = "index.damaged"
)

// Suffixes of files in reports and spool.
const (
	readySuffix  = ".nsys-rep"
	rawSuffix    = ".qdstrm"
	failedSuffix = ".failed"
	newPrefix    = ".new-"
)

// Options are the settings of a store.
type Options struct {
	// Dir is the folder with a folder per claim.
	Dir   string
	Files disk.Files
	Now   func() time.Time
	// Collector is the directory of prism-collector, with a folder per claim whose counters are recorded; see package counters.
	Collector string
	// NodeBytes is the limit of all claims together, a namespace is limited to half of it; 0 is unlimited.
	NodeBytes int64
	// Imports: an importer runs on the node, and raw files wait for it. Otherwise they stay raw.
	Imports bool
	// Follow: another process of the node may write indexes until Lead. Two processes use the same folder while one replaces the other.
	Follow bool
	// Changed is called after the state or reason of a report changed, and with only the claim after recording was stopped. It must not
	// block or call the store; nil is allowed.
	Changed func(report.Report)
	// Evicted is called after a report was deleted because another namespace needed the room. It must not block or call the store; nil is
	// allowed.
	Evicted func(report.Report)
	// Disarmed is the file match of a claim that is armed on demand, while it is not armed.
	Disarmed []byte
	// Failed is called with the error if a claim's reports could not be stored; nil is allowed.
	Failed func(claimUID string, err error)
}

// Store stores the reports of a node. It is safe for concurrent use.
type Store struct {
	Options

	mu     sync.Mutex
	claims map[string]*index // by claim UID
	// imports is the time of the importer's last result.
	imports time.Time
	// following: another process may write indexes.
	following bool
	// breaking is held while a file is truncated on which a container's process holds a lease.
	breaking sync.Mutex
	// changed are claims whose inbox may contain new files.
	changed chan struct{}
	// identities contains the state of the claims' namespaces.
	identities identities
}

// ErrBusy means that a report cannot be deleted because it is not complete yet.
var ErrBusy = errors.New("the report is still being recorded or imported")

// uidPattern matches the name of a claim's folder.
var uidPattern = regexp.MustCompile(`^[0-9a-zA-Z][0-9a-zA-Z-]{0,62}$`)

// Open reads the indexes of all claims. If an index is damaged, the files of its folder are kept, and the error is passed to Failed.
func Open(o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func(report.Report) {}
	}
	if o.Evicted == nil {
		o.Evicted = func(report.Report) {}
	}
	if o.Failed == nil {
		o.Failed = func(string, error) {}
	}
	s := &Store{Options: o, claims: map[string]*index{}, changed: make(chan struct{}, 1), following: o.Follow, identities: newIdentities()}
	return s, s.read()
}

// List returns the reports of a namespace, or of all for "", unsorted: sorting would block all others that wait for the lock. With the UID
// of the namespace, it omits reports of other namespaces of that name, but not of claims whose namespace's UID is still unknown.
func (s *Store) List(namespace, namespaceUID string) []report.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counted()
	most := n.node
	if namespace != "" {
		most = n.by[namespace]
	}
	all := make([]report.Report, 0, most) // growing it would copy thousands of reports repeatedly
	for _, c := range s.claims {
		if !s.shows(c, namespace, namespaceUID) {
			continue
		}
		for _, r := range c.Reports {
			all = append(all, c.shown(r))
		}
	}
	return all
}

// shows reports whether a claim belongs to a namespace, like List.
func (s *Store) shows(c *index, namespace, namespaceUID string) bool {
	if !c.ended.IsZero() || namespace != "" && c.Claim.Namespace != namespace {
		return false
	}
	if namespaceUID != "" && c.NamespaceUID != "" && c.NamespaceUID != namespaceUID {
		s.identities.doubt(namespace)
		return false
	}
	return true
}

// Get returns one report; fs.ErrNotExist if there is none.
func (s *Store) Get(claimUID, id string) (report.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, r, err := s.find(claimUID, id)
	if err != nil {
		return report.Report{}, err
	}
	return c.shown(r), nil
}

// Content opens the file of a report that is Ready or Raw; fs.ErrNotExist if there is none.
func (s *Store) Content(claimUID, id string) (*os.File, report.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, r, err := s.find(claimUID, id)
	if err != nil {
		return nil, report.Report{}, err
	}
	if r.SHA256 == "" || (r.State != report.Ready && r.State != report.Raw) {
		return nil, report.Report{}, fmt.Errorf("report %s is %s and has no file: %w", id, r.State, fs.ErrNotExist)
	}
	f, err := os.Open(s.path(claimUID, reportsDir, stored(r)))
	return f, *r, err
}

// Delete removes a report and its file. It returns fs.ErrNotExist if there is none, ErrBusy while it is being recorded, or imported for a
// prepared claim, and report.ErrPrecondition if it is not the requested one.
func (s *Store) Delete(claimUID, id string, d report.Deletion) error {
	gone, err := s.removeFromIndex(claimUID, id, d)
	if err != nil {
		return fmt.Errorf("deleting report %s: %w", id, err)
	}
	return s.free(claimUID, gone)
}

func (s *Store) removeFromIndex(claimUID, id string, d report.Deletion) ([]*report.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, r, err := s.find(claimUID, id)
	switch {
	case err != nil:
		return nil, err
	case s.following:
		return nil, ErrFollowing
	case !deletable(c, r):
		return nil, ErrBusy
	}
	if err := d.Check(*r); err != nil || d.DryRun {
		return nil, err
	}
	if r.State == report.Importing {
		if err := s.unspool(*r); err != nil {
			return nil, err
		}
	}
	return s.cut(c, func(other *report.Report) bool { return other == r })
}

func (s *Store) find(claimUID, id string) (*index, *report.Report, error) {
	c := s.claims[claimUID]
	if c != nil {
		if r := c.report(id); r != nil {
			return c, r, nil
		}
	}
	return nil, nil, fmt.Errorf("report %q of claim %q: %w", id, claimUID, fs.ErrNotExist)
}

// path returns a path below the folder of a claim.
func (s *Store) path(claimUID string, names ...string) string {
	return filepath.Join(append([]string{s.Dir, claimUID}, names...)...)
}

// stored returns the name of a report's file in the folder reports.
func stored(r *report.Report) string {
	if r.State == report.Raw {
		return r.ID + rawSuffix
	}
	return r.ID + readySuffix
}
