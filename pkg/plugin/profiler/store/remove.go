package store

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// removeBatch is the number of files that are removed before the lock of the store is released to others.
const removeBatch = 50

// cut removes reports from the index of a claim with one write, and returns them. Their files are removed after that: after a kill in
// between, each listed report still has a file, and the next process that stores reports removes the other files. Hold the lock.
func (s *Store) cut(c *index, gone func(*report.Report) bool) ([]*report.Report, error) {
	var kept, out []*report.Report
	for _, r := range c.Reports {
		if gone(r) {
			out = append(out, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	before := c.Reports
	c.Reports = kept
	err := s.save(c)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		// A full disk prevents any other deletion: the removed files make the room for the index.
		err = errors.Join(s.removeFiles(c.Claim.UID, out), s.save(c))
	}
	if err != nil {
		c.Reports = before
		return nil, err
	}
	return out, nil
}

// free removes the files of reports that cut returned. It releases the lock in between: a claim may contain a thousand reports.
func (s *Store) free(uid string, gone []*report.Report) (err error) {
	for batch := range slices.Chunk(gone, removeBatch) {
		err = errors.Join(err, s.freeBatch(uid, batch))
	}
	return err
}

func (s *Store) freeBatch(uid string, gone []*report.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil // its whole folder is removed
	}
	// A container may have created a session of the same name in the meantime.
	gone = slices.DeleteFunc(slices.Clone(gone), func(r *report.Report) bool { return c.report(r.ID) != nil })
	return s.removeFiles(uid, gone)
}

func (s *Store) removeFiles(uid string, gone []*report.Report) (err error) {
	for _, r := range gone {
		for _, name := range filesOf(r) {
			if removeErr := s.Files.Remove(s.path(uid, reportsDir, name)); removeErr != nil {
				err = errors.Join(err, fmt.Errorf("deleting the file of report %s: %w", r.ID, removeErr))
			}
		}
	}
	return err
}

// filesOf returns the possible file names of a report in the folder reports. A Lost report may have a damaged file.
func filesOf(r *report.Report) []string {
	switch {
	case r.State == report.Lost && r.Message == messageGone:
		return []string{r.ID + readySuffix, r.ID + rawSuffix}
	case r.SHA256 == "":
		return nil
	}
	return []string{stored(r)}
}
