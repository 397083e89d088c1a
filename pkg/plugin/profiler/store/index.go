package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// schema is the schema version of index files.
const schema = 1

// Claim is a claim whose processes are profiled.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	// Tool is the version of the profiler.
	Tool string `json:"tool,omitempty"`
	// MaxBytes is the maximum size of its reports and its inboxes; 0 is unlimited.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// Retention is the time that reports are kept after their process exited; 0 is unlimited.
	Retention time.Duration `json:"retention,omitempty"`
	// Dir is the folder for reports in the container, with placeholders, or the folder of the inbox; empty: unknown, because an earlier
	// version prepared the claim.
	Dir string `json:"dir,omitempty"`
	// ByHand are the settings for recording by hand.
	ByHand ByHand `json:"byHand,omitzero"`
	// Counters: prism-collector records the performance counters of the claim's GPUs.
	Counters bool `json:"counters,omitempty"`
}

// index is the stored state of a claim.
type index struct {
	Schema int   `json:"schema"`
	Claim  Claim `json:"claim"`
	// NamespaceUID is the UID of the claim's namespace; "" until it is known. Earlier versions stored none.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// Released: the claim is no longer prepared, and its containers are gone.
	Released bool `json:"released,omitempty"`
	// Stopped is the time at which recording was stopped because the store was full; Truncated: the inbox was emptied after that.
	Stopped   *time.Time       `json:"stopped,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
	Reports   []*report.Report `json:"reports"`
	// Armed is the last command to a claim that is armed on demand.
	Armed bool `json:"armed,omitempty"`
	// Dropped is the number of reports without a file that were removed from the index because there were too many.
	Dropped int `json:"dropped,omitempty"`

	inMemory
}

// inMemory is the state of a claim besides its index.
type inMemory struct {
	// changed: the file is outdated. durable: it is synced. idle: the claim was found idle after it was released.
	changed, durable, idle bool
	// prepares counts the calls of Prepare and Release.
	prepares int
	// inbox is the number of bytes of its inboxes at the last measurement.
	inbox int64
	// collector: the directory of prism-collector contains a folder of the claim.
	collector bool
	// notes are the last read notes of running sessions, by report.
	notes map[string]untrusted.Stamp
	// ended is the time since which the API server has answered that the claim's namespace was deleted; zero: it has not. confirmed: it has
	// repeated that, and the reports are removed. A process that begins to lead checks that again.
	ended     time.Time
	confirmed bool
}

// errDamaged: the index was not written by the store, and is not used.
var errDamaged = errors.New("damaged, or written by another version")

// rests reports whether a claim will not change any more: it is released, its reports are final, and its inboxes are empty.
func (c *index) rests() bool { return c.Released && c.idle && !c.changed }

func (c *index) report(id string) *report.Report {
	for _, r := range c.Reports {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// bytes returns the size of the stored files.
func (c *index) bytes() (all int64) {
	for _, r := range c.Reports {
		all += size(r)
	}
	return all
}

// load reads the index of a claim; nil if there is none. It removes parts of files, and files without a report, which a kill may have left.
func (s *Store) load(uid string) (*index, error) {
	c, err := s.decode(uid)
	if errors.Is(err, errDamaged) && !s.hasFiles(uid) {
		return nil, nil // after a power cut: an index is not synced before it contains reports
	}
	if err != nil || c == nil {
		return c, err
	}
	c.compact(s.Now())
	if s.following {
		return c, nil
	}
	for _, dir := range []string{reportsDir, spoolDir} {
		if err := s.clear(c, dir); err != nil {
			return nil, err
		}
	}
	s.check(c)
	c.durable = len(c.Reports) > 0 && s.hasFolders(uid)
	return c, nil
}

// hasFolders reports whether the folders of files exist. A power cut during the first durable write of an index may leave it without them.
func (s *Store) hasFolders(uid string) bool {
	for _, dir := range []string{reportsDir, spoolDir} {
		if _, err := os.Lstat(s.path(uid, dir)); err != nil {
			return false
		}
	}
	return true
}

// hasFiles reports whether the folder of a claim contains files of reports.
func (s *Store) hasFiles(uid string) bool {
	for _, dir := range []string{reportsDir, spoolDir} {
		if names, err := s.Files.List(s.path(uid, dir)); err != nil || len(names) > 0 {
			return true
		}
	}
	return false
}

// decode reads the file of an index; nil if there is none.
func (s *Store) decode(uid string) (*index, error) {
	raw, err := s.Files.Read(s.path(uid, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the reports of claim %s: %w", uid, err)
	}
	var c index
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("reading the reports of claim %s: %s: %w: %w", uid, s.path(uid, indexFile), errDamaged, err)
	}
	if c.Schema != schema || c.Claim.UID != uid {
		return nil, fmt.Errorf("reading the reports of claim %s: %w: %s has schema %d and claim %q, must have schema %d and this claim",
			uid, errDamaged, s.path(uid, indexFile), c.Schema, c.Claim.UID, schema)
	}
	return &c, nil
}

// messageGone is the message of a report whose file was removed or damaged.
const messageGone = "the file of the report is no longer on the node"

// check finds reports whose file is missing or differs from the stored one: it was removed, or the disk is damaged.
func (s *Store) check(c *index) {
	for _, r := range c.Reports {
		if r.SHA256 == "" || r.State != report.Ready && r.State != report.Raw {
			continue
		}
		info, err := os.Lstat(s.path(c.Claim.UID, reportsDir, stored(r)))
		if err == nil && info.Mode().IsRegular() && info.Size() == r.Size {
			continue
		}
		r.State, r.Reason, r.Message, c.changed = report.Lost, reasonNoReport, messageGone, true
		r.Size, r.SHA256 = 0, ""
	}
}

// clear removes incomplete files, and files of reports that are not in the index, because of an earlier kill. Files of a damaged index
// stay.
func (s *Store) clear(c *index, dir string) error {
	names, err := s.Files.List(s.path(c.Claim.UID, dir))
	if len(names) == 0 {
		return err
	}
	_, damagedErr := os.Lstat(s.path(c.Claim.UID, damagedFile))
	listed := map[string]bool{}
	for _, r := range c.Reports {
		listed[r.ID] = true
	}
	for _, name := range names {
		id, of := reportOf(name)
		if partial := len(name) > len(newPrefix) && strings.HasPrefix(name, newPrefix); partial || of && !listed[id] && errors.Is(damagedErr, fs.ErrNotExist) {
			err = errors.Join(err, s.Files.Remove(s.path(c.Claim.UID, dir, name)))
		}
	}
	return err
}

// reportOf returns the id of the report whose file has that name; false if it is not a file of a report.
func reportOf(name string) (id string, ok bool) {
	for _, suffix := range []string{readySuffix, rawSuffix, failedSuffix} {
		if id, ok = strings.CutSuffix(name, suffix); ok {
			return id, id != ""
		}
	}
	return "", false
}

// save writes the index of a claim: durably once it contains reports, which cannot be restored after a power cut.
func (s *Store) save(c *index) error { return s.write(c, c.durable || len(c.Reports) > 0) }

// sync makes the index of a claim durable before the first file of a report: a file without an index would never be removed.
func (s *Store) sync(uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil && !c.durable {
		return s.write(c, true)
	}
	return nil
}

func (s *Store) write(c *index, durable bool) error {
	raw, err := json.Marshal(c)
	for _, dir := range []string{reportsDir, spoolDir} { // most claims never use them
		if err == nil && durable && !c.durable {
			err = s.Files.MakeDir(s.path(c.Claim.UID, dir), 0o700)
		}
	}
	if err == nil {
		err = disk.Replace(s.Files, s.path(c.Claim.UID, indexFile), raw, indexPerm, durable)
	}
	if err == nil && durable && !c.durable {
		err = s.Files.SyncDir(s.Dir) // Prepare created the folder
	}
	if err != nil {
		return fmt.Errorf("writing the reports of claim %s: %w", c.Claim.UID, err)
	}
	c.changed, c.durable = false, durable
	return nil
}

// flush writes the index of a claim if it has changed: once in a scan, for any number of sessions.
func (s *Store) flush(uid string) error {
	s.mu.Lock()
	var dropped []*report.Report
	var err error
	if c := s.claims[uid]; c != nil && c.changed {
		dropped = c.dropLost()
		err = s.save(c)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.free(uid, dropped)
}
