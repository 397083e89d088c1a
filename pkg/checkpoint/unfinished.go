package checkpoint

import (
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
)

// Unfinished lists the UIDs of the claims whose record began to be written: a process is still writing it, or was killed.
// Those of earlier driver names are not listed; they are removed with their directory.
func (s *Store) Unfinished() ([]string, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the records in %s: %w", s.dir, err)
	}
	return named(names, recordSuffix+disk.TempSuffix), nil
}

// SetAside lists the UIDs of the claims that have a damaged record.
func (s *Store) SetAside() ([]string, error) {
	names, err := s.names()
	return named(names, recordSuffix+damagedSuffix), err
}

// named lists the UIDs of the claims that have a file with that suffix.
func named(names []string, suffix string) []string {
	var uids []string
	for _, name := range names {
		uid, isOne := strings.CutSuffix(name, suffix)
		if isOne && checkUID(uid) == nil {
			uids = append(uids, uid)
		}
	}
	return uids
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
