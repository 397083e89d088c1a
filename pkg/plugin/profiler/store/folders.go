package store

import (
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Folders are the host's directories of a claim that are mounted in its containers.
type Folders struct {
	// Containers read Plan and write to Inbox.
	Plan, Inbox string
}

// Folders returns the folders of a claim; Prepare creates them.
func (s *Store) Folders(claimUID string) Folders {
	return Folders{Plan: s.path(claimUID, planDir), Inbox: s.path(claimUID, inboxDir)}
}

// CollectorFolder returns the folder of a claim in the directory of prism-collector; Prepare creates it for a claim with Counters.
func (s *Store) CollectorFolder(claimUID string) string { return filepath.Join(s.Collector, claimUID) }

// Of returns the reports of a claim, and whether its recording was stopped because the store is full.
func (s *Store) Of(claimUID string) (reports []report.Report, stopped bool) {
	reports = s.reports(claimUID)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	return reports, c != nil && c.Stopped != nil
}
