package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// ByHand are the settings of a claim for recording by hand. The zero value: its processes are recorded from their start.
type ByHand struct {
	// Waits: a process waits for a command. OnDemand: processes are only selected while the claim is armed.
	Waits    bool `json:"waits,omitempty"`
	OnDemand bool `json:"onDemand,omitempty"`
	// Duration is the default length of a recording; 0: the maximum.
	Duration time.Duration `json:"duration,omitempty"`
	// SamplesCPU: the settings of CPU samples have an effect.
	SamplesCPU bool `json:"samplesCPU,omitempty"`
}

// matchFile is the file of a plan that selects processes.
const matchFile = "match"

// WaitPattern matches the name of the folder of a process that waits to be recorded.
var WaitPattern = regexp.MustCompile(`^w[0-9]{1,10}-[0-9a-f]{16}$`)

// MaxWaits is the maximum number of processes of a claim that are inspected at once.
const MaxWaits = 256

// Prepared is a claim whose containers may run, or its recordings by prism-collector.
type Prepared struct {
	Claim
	// Counters: prism-collector's processes wait in these folders, not those of containers.
	Counters bool
	// NamespaceUID is "" if unknown.
	NamespaceUID string
	Folders
	// Control is the folder for commands.
	Control string
	// Armed is set for claims that are armed on demand; Stopped: recording is stopped because the store is full.
	Armed, Stopped bool
}

// Prepared returns the prepared claims of a namespace, or of all for "", in the order of their UIDs. A claim whose counters are recorded has
// two entries, the first with Counters. With the UID of the namespace, it omits claims like List.
func (s *Store) Prepared(namespace, namespaceUID string) (all []Prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, c := range s.claims {
		if c.Released || !s.shows(c, namespace, namespaceUID) {
			continue
		}
		for i, folders := range s.allFolders(uid, c.collector) {
			of := Prepared{
				Claim: c.Claim, Counters: c.collector && i == 0, NamespaceUID: c.NamespaceUID, Folders: folders,
				Control: filepath.Join(folders.Plan, session.ControlFolder), Armed: c.Armed, Stopped: c.Stopped != nil,
			}
			if of.Counters {
				of.ByHand.OnDemand, of.ByHand.SamplesCPU, of.Armed = false, false, false // these settings are about containers
			}
			all = append(all, of)
		}
	}
	slices.SortStableFunc(all, func(a, b Prepared) int { return cmp.Compare(a.UID, b.UID) })
	return all
}

// Leads returns ErrFollowing while another process of the node writes.
func (s *Store) Leads() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.following {
		return ErrFollowing
	}
	return nil
}

// Arm makes a claim select processes with a file match, or no more processes. Another Prepare does not change that. fs.ErrNotExist: the
// claim is not prepared.
func (s *Store) Arm(uid string, armed bool, match []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	switch {
	case s.following:
		return ErrFollowing
	case c == nil || c.Released:
		return fmt.Errorf("claim %s is not prepared: %w", uid, fs.ErrNotExist)
	case !armed:
		match = s.Disarmed
	}
	// After a kill in between, the command is repeated, and the next Prepare restores what the index says.
	err := s.renew(s.path(uid, planDir, matchFile), match)
	if err == nil && c.Armed != armed {
		c.Armed = armed
		if err = s.write(c, true); err != nil {
			c.Armed = !armed
		}
	}
	if err != nil {
		return fmt.Errorf("arming or disarming claim %s: %w", uid, err)
	}
	return nil
}

// selecting returns the plan of a claim, whose file match selects no process unless the claim is armed.
func (s *Store) selecting(claim Claim, armed bool, plan map[string][]byte) map[string][]byte {
	if !claim.ByHand.OnDemand || armed || plan[matchFile] == nil {
		return plan
	}
	plan = maps.Clone(plan)
	plan[matchFile] = s.Disarmed
	return plan
}

// exited returns the folders of waiting processes that have exited, of a limited number of folders.
func (s *Store) exited(uid string, inbox *os.File, names []string) (gone []string) {
	s.mu.Lock()
	released := s.claims[uid] != nil && s.claims[uid].Released
	s.mu.Unlock()
	left := MaxWaits
	for _, name := range names {
		if left <= 0 || !WaitPattern.MatchString(name) {
			continue
		}
		left--
		if dir, err := untrusted.Folder(inbox, name); err == nil {
			if s.hasExited(dir, released) {
				gone = append(gone, name)
			}
			_ = dir.Close()
		}
	}
	return gone
}

// hasExited reports whether a process no longer holds the note of its folder.
func (s *Store) hasExited(dir *os.File, released bool) bool {
	f, st, err := untrusted.File(dir, noteFile, unix.O_RDONLY)
	if err != nil {
		return s.begins(dir, released) == over
	}
	defer f.Close()
	return (released || !s.fresh(st)) && !untrusted.Locked(f)
}

// withoutReports renames the folders of cancelled recordings of an inbox, and returns all of its folders to discard: after a kill during its
// removal, the rest of a recording would be Lost.
func (s *Store) withoutReports(in *inbox) (names []string, err error) {
	names = in.over
	for _, name := range in.cancelled {
		other := "w" + name[1:]
		renameErr := s.Files.Rename(filepath.Join(in.path, name), filepath.Join(in.path, other))
		switch {
		case renameErr == nil:
			names = append(names, other)
		case errors.Is(renameErr, fs.ErrExist), errors.Is(renameErr, unix.ENOTDIR): // a container created the other one
			names = append(names, name)
		default:
			err = errors.Join(err, renameErr)
		}
	}
	return names, err
}

// dropReport drops the report of a cancelled recording.
func (s *Store) dropReport(uid, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return
	}
	if r := c.report(id); r != nil {
		c.drop([]*report.Report{r})
		c.changed = true
		s.Changed(report.Report{ClaimUID: uid})
	}
}
