package store

import (
	"path/filepath"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Folders are host directories of a claim: those that are mounted in its containers, or those of prism-collector.
type Folders struct {
	// Containers, or the collector, read Plan and write to Inbox.
	Plan, Inbox string
}

// Folders returns the folders of a claim; Prepare creates them.
func (s *Store) Folders(claimUID string) Folders {
	return Folders{Plan: s.path(claimUID, planDir), Inbox: s.path(claimUID, inboxDir)}
}

// CollectorFolder returns the folder of a claim in the directory of prism-collector; Prepare creates it for a claim with Counters.
func (s *Store) CollectorFolder(claimUID string) string { return filepath.Join(s.Collector, claimUID) }

// withCounters reports whether a claim needs a folder in the directory of prism-collector.
func (s *Store) withCounters(claim Claim) bool { return claim.Counters && s.Collector != "" }

// allFolders returns all folders that are read for a claim, first those of prism-collector if it has a folder of the claim.
func (s *Store) allFolders(claimUID string, collector bool) []Folders {
	if !collector {
		return []Folders{s.Folders(claimUID)}
	}
	dir := s.CollectorFolder(claimUID)
	return []Folders{{Plan: filepath.Join(dir, counters.PlanDir), Inbox: filepath.Join(dir, counters.InboxDir)}, s.Folders(claimUID)}
}

// Of returns the reports of a claim, and whether its recording was stopped because the store is full.
func (s *Store) Of(claimUID string) (reports []report.Report, stopped bool) {
	reports = s.reports(claimUID)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[claimUID]
	return reports, c != nil && c.Stopped != nil
}
