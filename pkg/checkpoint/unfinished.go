package checkpoint

import (
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
)

// Unfinished lists the UIDs of the claims whose record began to be written: a process is still writing it, or was killed.
func (s *Store) Unfinished() ([]string, error) { return s.named(recordSuffix + disk.TempSuffix) }

// SetAside lists the UIDs of the claims that have a damaged record.
func (s *Store) SetAside() ([]string, error) { return s.named(recordSuffix + damagedSuffix) }

// named lists the UIDs of the claims that have a file with that suffix.
func (s *Store) named(suffix string) ([]string, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the records in %s: %w", s.dir, err)
	}
	var uids []string
	for _, name := range names {
		uid, isOne := strings.CutSuffix(name, suffix)
		if _, err := s.path(uid); isOne && err == nil {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// Discard removes what a crash left of writing the claim's record, and not the record; no error when there is nothing.
// No process may be writing it: hold the claim's lock and those of the record's GPUs.
func (s *Store) Discard(uid string) error {
	path, err := s.path(uid)
	if err != nil {
		return err
	}
	if err := s.disk.Remove(path + disk.TempSuffix); err != nil {
		return fmt.Errorf("removing the unfinished record of claim %s: %w", uid, err)
	}
	return nil
}
