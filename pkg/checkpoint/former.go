package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// formerDirs are the directories of records under earlier names of the driver. It is safe for concurrent use.
type formerDirs struct{ dirs atomic.Pointer[[]string] }

func (f *formerDirs) all() []string {
	if dirs := f.dirs.Load(); dirs != nil {
		return *dirs
	}
	return nil
}

// Adopt adds the records in the plugin's directory of an earlier driver name. They are changed and deleted in place, and new records are
// not written there. Hold the lead lock of that directory.
func (s *Store) Adopt(dir string) {
	dirs := append(slices.Clone(s.former.all()), RecordsDir(dir))
	s.former.dirs.Store(&dirs)
}

// Disown reverts Adopt.
func (s *Store) Disown(dir string) {
	dirs := slices.DeleteFunc(slices.Clone(s.former.all()), func(other string) bool { return other == RecordsDir(dir) })
	s.former.dirs.Store(&dirs)
}

// FormerUIDs lists the claims with a record in the plugin's directory of an earlier driver name.
func (s *Store) FormerUIDs(dir string) ([]string, error) {
	names, err := s.disk.List(RecordsDir(dir))
	if err != nil {
		return nil, fmt.Errorf("listing the records in %s: %w", RecordsDir(dir), err)
	}
	var uids []string
	for _, name := range names {
		if uid, isRecord := RecordOf(name); isRecord {
			uids = append(uids, uid)
		}
	}
	return uids, nil
}

// KeepDamaged moves damaged records from the plugin's directory of an earlier driver name to the current one, where administrators find
// them.
func (s *Store) KeepDamaged(dir string) error {
	names, err := s.disk.List(RecordsDir(dir))
	if err != nil {
		return fmt.Errorf("listing the records in %s: %w", RecordsDir(dir), err)
	}
	for _, name := range names {
		if filepath.Ext(name) != damagedSuffix {
			continue
		}
		if err := s.disk.Rename(filepath.Join(RecordsDir(dir), name), filepath.Join(s.dir, name)); err != nil {
			return fmt.Errorf("keeping the damaged record %s: %w", name, err)
		}
	}
	return nil
}

// dirOf is the directory that contains the claim's record; the directory of new records if none does.
func (s *Store) dirOf(file string) string {
	for _, dir := range s.former.all() {
		if _, err := s.disk.Read(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return dir
		}
	}
	return s.dir
}

// names lists the files of all directories.
func (s *Store) names() ([]string, error) {
	var all []string
	for _, dir := range append([]string{s.dir}, s.former.all()...) {
		names, err := s.disk.List(dir)
		if err != nil {
			return nil, fmt.Errorf("listing the records in %s: %w", dir, err)
		}
		all = append(all, names...)
	}
	if len(all) > 0 && len(s.former.all()) > 0 {
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return all, nil
}

// Former reports whether the record was written under an earlier driver name: the scheduler does not know that its devices are in use.
func (r *Record) Former() bool { return r.former }
