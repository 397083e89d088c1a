package checkpoint

import (
	"fmt"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
)

// Unfinished lists the UIDs of the claims with an incomplete write of a record: a process is still writing it, or was killed. Records of
// earlier driver names are not listed; they are removed with their directory.
func (s *Store) Unfinished() ([]string, error) {
	names, err := s.disk.List(s.dir)
	if err != nil {
		return nil, fmt.Errorf("listing the records in %s: %w", s.dir, err)
	}
	return named(names, recordSuffix+disk.TempSuffix), nil
}

// SetAside lists the UIDs of the claims with a damaged record.
func (s *Store) SetAside() ([]string, error) {
	names, err := s.names()
	return named(names, recordSuffix+damagedSuffix), err
}

// named lists the UIDs of the claims with a file with that suffix.
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

// Discard removes the leftovers of a crash while the claim's record was written, and keeps the record; no error if there are none. No
// process may be writing it: hold the claim's lock and the locks of the record's GPUs.
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
