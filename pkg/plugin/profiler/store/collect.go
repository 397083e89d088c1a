package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// importLimit is the maximum time that a raw file waits for an idle importer: while it works on other files, the file waits its turn.
const importLimit = 30 * time.Minute

// collect collects the importer's results for raw files: a report, or the reason why there is none.
func (s *Store) collect(copying *copies, uid string) error {
	names, err := s.Files.List(s.path(uid, spoolDir))
	if err != nil {
		return fmt.Errorf("reading imported reports of claim %s: %w", uid, err)
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	for _, r := range s.reports(uid) {
		if r.State == report.Importing && copying.left > 0 {
			err = errors.Join(err, s.importing(copying, r, there))
		}
	}
	if flushErr := s.flush(uid); flushErr != nil {
		return errors.Join(err, flushErr) // the spool stays until the index contains the result
	}
	for _, r := range s.reports(uid) {
		if r.State.Final() && (there[r.ID+readySuffix] || there[r.ID+failedSuffix] || there[r.ID+rawSuffix]) {
			err = errors.Join(err, s.unspool(r))
		}
	}
	return errors.Join(err, s.unspoolDeleted(uid, names))
}

// deletable reports whether a report may be removed. A report that is being imported may be removed once its claim is released: the
// deletion of a namespace waits for all of its reports, and an importer may take long.
func deletable(c *index, r *report.Report) bool {
	return (r.State.Final() || c.Released && r.State == report.Importing) && !c.partial(r)
}

// unspoolDeleted removes the importer's results for raw files whose reports were deleted in the meantime. A session that a kill left
// without a report is still in the inbox, and the next scan adds it again.
func (s *Store) unspoolDeleted(uid string, names []string) (err error) {
	known := map[string]bool{}
	for _, r := range s.reports(uid) {
		known[r.ID] = true
	}
	for _, name := range names {
		for _, suffix := range []string{rawSuffix, readySuffix, failedSuffix} {
			id, ours := strings.CutSuffix(name, suffix)
			if ours && !strings.HasPrefix(id, ".") && !known[id] {
				err = errors.Join(err, s.Files.Remove(s.path(uid, spoolDir, name)))
			}
		}
	}
	return err
}

// storeImported stores the result for an imported report, unless the report was deleted in the meantime: then its file is removed too.
func (s *Store) storeImported(r report.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known, err := s.find(r.ClaimUID, r.ID)
	if err != nil {
		return s.Files.Remove(s.path(r.ClaimUID, reportsDir, stored(&r)))
	}
	*known, c.changed = r, true
	s.Changed(r)
	return nil
}

// importing collects the result for a raw file; there are the files of the spool.
func (s *Store) importing(copying *copies, r report.Report, there map[string]bool) error {
	switch {
	case there[r.ID+readySuffix]:
		s.markProgress()
		return s.imported(copying, r)
	case there[r.ID+failedSuffix]:
		s.markProgress()
		r.Message = s.refusal(r)
		return s.keepRaw(r, reasonImport)
	case !s.Imports || s.waited(r) > importLimit:
		return s.keepRaw(r, reasonNoImport)
	case !there[r.ID+rawSuffix]:
		return s.moved(r)
	}
	return nil
}

// waited returns the time that a raw file has been in the spool while the importer was idle.
func (s *Store) waited(r report.Report) time.Duration {
	info, err := os.Lstat(s.path(r.ClaimUID, spoolDir, r.ID+rawSuffix))
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Now().Sub(later(info.ModTime(), s.imports))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// markProgress records that the importer is working.
func (s *Store) markProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imports = s.Now()
}

// refusal returns the importer's reason for not importing a raw file.
func (s *Store) refusal(r report.Report) string {
	raw, err := s.Files.Read(s.path(r.ClaimUID, spoolDir, r.ID+failedSuffix))
	if err != nil {
		return ""
	}
	return untrusted.Escape(strings.TrimSpace(string(raw)), untrusted.MaxField)
}

// reports returns the reports of a claim.
func (s *Store) reports(uid string) (all []report.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[uid]; c != nil {
		for _, r := range c.Reports {
			all = append(all, *r)
		}
	}
	return all
}

// imported takes a report from the spool. The file is copied, so that its size and hash match the stored copy.
func (s *Store) imported(copying *copies, r report.Report) error {
	raw := r
	dir, err := untrusted.Open(s.path(r.ClaimUID, spoolDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	err = s.take(copying, dir, r.ID+readySuffix, reportsDir, r.ID+readySuffix, &r)
	if reason := lost(err); reason == reasonFull {
		return s.keepRaw(raw, reasonFull)
	} else if reason != "" {
		return s.keepRaw(raw, reasonImportOut)
	}
	if err != nil {
		return fmt.Errorf("storing imported report %s: %w", r.ID, err)
	}
	r.State, r.File = report.Ready, fileName(r.File, r.ID)+readySuffix
	return s.storeImported(r)
}

// keepRaw keeps the raw file for downloads.
func (s *Store) keepRaw(r report.Report, reason string) error {
	err := s.Files.Rename(s.path(r.ClaimUID, spoolDir, r.ID+rawSuffix), s.path(r.ClaimUID, reportsDir, r.ID+rawSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return s.moved(r)
	}
	if err == nil {
		err = s.Files.SyncDir(s.path(r.ClaimUID, reportsDir))
	}
	if err != nil {
		return fmt.Errorf("keeping raw report %s: %w", r.ID, err)
	}
	return s.raw(r, reason)
}

func (s *Store) raw(r report.Report, reason string) error {
	r.State, r.Reason, r.File = report.Raw, reason, fileName(r.File, r.ID)+rawSuffix
	return s.storeImported(r)
}

// moved handles a raw file that left the spool before a kill: it is stored, or it is lost.
func (s *Store) moved(r report.Report) error {
	dir, err := untrusted.Open(s.path(r.ClaimUID, reportsDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, _, err := untrusted.File(dir, r.ID+rawSuffix, unix.O_RDONLY)
	if err == nil {
		_ = f.Close()
		return s.raw(r, reasonImport)
	}
	r.State, r.Reason, r.Size, r.SHA256 = report.Lost, reasonNoReport, 0, ""
	return s.storeImported(r)
}

// unspool removes the files of a report from the spool.
func (s *Store) unspool(r report.Report) (err error) {
	for _, suffix := range []string{rawSuffix, readySuffix, failedSuffix} {
		err = errors.Join(err, s.Files.Remove(s.path(r.ClaimUID, spoolDir, r.ID+suffix)))
	}
	return err
}
