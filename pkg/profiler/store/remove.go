package store

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// removeBatch is how many files are removed until others may have the lock of the store.
const removeBatch = 50

// cut takes reports out of the index of a claim with one write, and returns them. Their files are removed after that: killed in between, each
// report that is listed has its file, and the next process that stores reports removes the others. The lock is held.
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
		// Nothing could be deleted on a disk that is full: here the files make the room for the index.
		err = errors.Join(s.removeFiles(c.Claim.UID, out), s.save(c))
	}
	if err != nil {
		c.Reports = before
		return nil, err
	}
	return out, nil
}

// free removes the files of reports that cut has returned. Others get the lock in between: a claim may have a thousand.
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
		return nil // its folder is removed as a whole
	}
	// A container may have made a session of the same name by now.
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

// filesOf are the names that a report may have a file under in the folder reports. One that is Lost has one where that was damaged.
func filesOf(r *report.Report) []string {
	switch {
	case r.State == report.Lost && r.Message == messageGone:
		return []string{r.ID + readySuffix, r.ID + rawSuffix}
	case r.SHA256 == "":
		return nil
	}
	return []string{stored(r)}
}
