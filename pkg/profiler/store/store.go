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
	// damagedFile is what an index is renamed to that cannot be read when its claim is prepared.
	damagedFile = "index.damaged"
)

// Suffixes of files in reports and spool.
const (
	readySuffix  = ".nsys-rep"
	rawSuffix    = ".qdstrm"
	failedSuffix = ".failed"
	newPrefix    = ".new-"
)

// Options are how a store works.
type Options struct {
	// Dir is the folder with a folder per claim.
	Dir   string
	Files disk.Files
	Now   func() time.Time
	// NodeBytes is how much all claims may take together, those of a namespace half of it; 0 is no limit.
	NodeBytes int64
	// Imports says that an importer runs on the node: raw files wait for it. Without one they stay raw.
	Imports bool
	// Follow: another process of the node may write indexes until Lead. Two have the same folder while one takes over from the other.
	Follow bool
	// Changed is called after a report got another state or reason, and with the claim alone after recording was stopped. It may not block or call the store; nil is allowed.
	Changed func(report.Report)
	// Evicted is called after a report was deleted because another namespace needed the room. It may not block or call the store; nil is allowed.
	Evicted func(report.Report)
	// Failed is called with what kept a claim's reports from being stored; nil is allowed.
	Failed func(claimUID string, err error)
}

// Store keeps the reports of a node. Its methods may be called at the same time.
type Store struct {
	Options

	mu     sync.Mutex
	claims map[string]*index // by claim UID
	// imports is when something came from the importer last.
	imports time.Time
	// following: another process may write indexes.
	following bool
	// breaking is held while a file is truncated on which a container's process has a lease.
	breaking sync.Mutex
	// changed are claims whose inbox may have something new.
	changed chan struct{}
	// spares are folders of claims to come.
	spares spares
	// identities are what is known of the namespaces that claims are in.
	identities identities
}

// ErrBusy is why a report cannot be deleted: it is not complete yet.
var ErrBusy = errors.New("the report is still being recorded or imported")

// uidPattern is what names the folder of a claim.
var uidPattern = regexp.MustCompile(`^[0-9a-zA-Z][0-9a-zA-Z-]{0,62}$`)

// Open reads the indexes of all claims. A folder whose index is damaged keeps its files, and is reported to Failed.
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
	s := &Store{Options: o, claims: map[string]*index{}, changed: make(chan struct{}, 1), following: o.Follow, spares: newSpares(), identities: newIdentities()}
	return s, s.read()
}

// List returns the reports of a namespace, of all with "", in no order: nothing is sorted while all others wait for the lock. With the UID of the
// namespace, reports of others of its name are left out; those of claims whose namespace's UID is not known yet are not.
func (s *Store) List(namespace, namespaceUID string) []report.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counted()
	most := n.node
	if namespace != "" {
		most = n.by[namespace]
	}
	all := make([]report.Report, 0, most) // growing it would copy thousands of reports again and again
	for _, c := range s.claims {
		if !c.ended.IsZero() || namespace != "" && c.Claim.Namespace != namespace {
			continue
		}
		if namespaceUID != "" && c.NamespaceUID != "" && c.NamespaceUID != namespaceUID {
			s.identities.doubt(namespace)
			continue
		}
		for _, r := range c.Reports {
			all = append(all, c.shown(r))
		}
	}
	return all
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

// Content opens the file of a report that is Ready or Raw; fs.ErrNotExist if it has none.
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

// Delete removes a report and its file; fs.ErrNotExist if there is none, ErrBusy while it is being recorded, or imported for a claim that is
// prepared, report.ErrPrecondition if it is not the one that is to be deleted.
func (s *Store) Delete(claimUID, id string, d report.Deletion) error {
	gone, err := s.cutOne(claimUID, id, d)
	if err != nil {
		return fmt.Errorf("deleting report %s: %w", id, err)
	}
	return s.free(claimUID, gone)
}

func (s *Store) cutOne(claimUID, id string, d report.Deletion) ([]*report.Report, error) {
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

// path is a path below the folder of a claim.
func (s *Store) path(claimUID string, names ...string) string {
	return filepath.Join(append([]string{s.Dir, claimUID}, names...)...)
}

// stored is the name of a report's file in the folder reports.
func stored(r *report.Report) string {
	if r.State == report.Raw {
		return r.ID + rawSuffix
	}
	return r.ID + readySuffix
}
