package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

// ErrUnreadable means that a record exists and the disk cannot read it now. It may be valid, so it is not renamed.
var ErrUnreadable = errors.New("record cannot be read now")

// Store keeps one file per claim in a directory. It does not lock: hold the claim's lock.
type Store struct {
	disk   disk.Files
	dir    string
	former formerDirs
}

const (
	recordSuffix = ".json"
	// damagedSuffix ends the name of a damaged record; it is never read again, only inspected by administrators.
	damagedSuffix = ".damaged"
)

// RecordsDir is the directory of the records below the plugin's directory.
func RecordsDir(dir string) string { return filepath.Join(dir, "claims") }

// Open creates the directory "claims" below dir if it does not exist.
func Open(d disk.Files, dir string) (*Store, error) {
	s := &Store{disk: d, dir: RecordsDir(dir)}
	if err := d.MakeDir(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the directory of records %s: %w", s.dir, err)
	}
	// A power cut that removes a directory also removes its files, synced or not.
	if err := d.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("creating the directory of records %s durably: %w", s.dir, err)
	}
	return s, nil
}

// Put writes the record durably: after a power cut the claim's file contains this record or the previous one. On a full disk a record in
// state Releasing replaces the previous one in place, because otherwise undoing would begin while the record on disk says that the claim is
// prepared. A power cut during this write also ends the effects.
func (s *Store) Put(r *Record) error {
	path, err := s.path(r.Claim.UID)
	if err != nil {
		return err
	}
	data, err := Encode(r)
	if err != nil {
		return err
	}
	err = disk.Replace(s.disk, path, data, 0o600, true)
	if errors.Is(err, syscall.ENOSPC) && r.State == Releasing && s.overwrite(path, r) == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storing the record of claim %s: %w", r.Claim.UID, err)
	}
	return nil
}

// overwrite writes the record over the previous one in place.
func (s *Store) overwrite(path string, r *Record) error {
	before, err := s.disk.Read(path)
	if err != nil {
		return err
	}
	data, err := padded(r, len(before))
	if err != nil {
		return err
	}
	return s.disk.Overwrite(path, data)
}

// Load returns the claim's record; gpu.ErrNotFound if it does not exist, ErrDamaged if it is damaged, a *NewerError if only a newer version
// may act on it. Load renames a damaged record: the next call finds none.
func (s *Store) Load(uid string) (*Record, error) {
	path, err := s.path(uid)
	if err != nil {
		return nil, err
	}
	data, err := s.disk.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("record of claim %s: %w", uid, gpu.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of claim %s: %w", uid, err)
	}
	r, err := decodeFor(uid, data)
	former := filepath.Dir(path) != s.dir
	if newer, isNewer := errors.AsType[*NewerError](err); isNewer && newer.Record != nil {
		newer.Record.former = former
	}
	if errors.Is(err, ErrDamaged) {
		return nil, s.setAside(path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("record of claim %s: %w", uid, err)
	}
	r.former = former
	return r, nil
}

// decodeFor parses the bytes of the claim's record file. Its errors are the errors of Decode; the record of another claim is damaged.
func decodeFor(uid string, data []byte) (*Record, error) {
	r, err := Decode(data)
	if newer, isNewer := errors.AsType[*NewerError](err); isNewer {
		r = newer.Record
	}
	if r != nil && r.Claim.UID != uid {
		return nil, fmt.Errorf("%w: it belongs to claim %s", ErrDamaged, r.Claim.UID)
	}
	return r, err
}

// setAside renames a damaged record, which keeps it for administrators and blocks nothing.
func (s *Store) setAside(path string, cause error) error {
	if err := s.disk.Rename(path, path+damagedSuffix); err != nil {
		return fmt.Errorf("%s: %w; setting it aside: %w", path, cause, err)
	}
	return fmt.Errorf("%s was set aside as %s: %w", filepath.Base(path), filepath.Base(path)+damagedSuffix, cause)
}

// Delete removes the claim's record durably, including leftovers of an interrupted Put; no error if it does not exist.
func (s *Store) Delete(uid string) error {
	path, err := s.path(uid)
	if err != nil {
		return err
	}
	if err := errors.Join(s.disk.Remove(path+disk.TempSuffix), s.disk.Remove(path)); err != nil {
		return fmt.Errorf("removing the record of claim %s: %w", uid, err)
	}
	if err := s.disk.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("removing the record of claim %s durably: %w", uid, err)
	}
	return nil
}

// All returns every readable record in the order of the claims' UIDs, and one error per renamed, damaged record. It includes records on
// which only a newer version may act, because their claims own devices; Load refuses them. ErrUnreadable: further records exist, of which
// nothing is known.
func (s *Store) All() (records []*Record, damaged []error, err error) {
	names, err := s.names()
	if err != nil {
		return nil, nil, err
	}
	var unreadable []error
	for _, name := range names {
		uid, isRecord := RecordOf(name)
		if !isRecord {
			continue
		}
		r, err := s.Load(uid)
		newer, isNewer := errors.AsType[*NewerError](err)
		switch {
		case isNewer && newer.Record != nil:
			records = append(records, newer.Record)
		case errors.Is(err, gpu.ErrNotFound), errors.Is(err, syscall.EISDIR): // removed since the listing, or not a file
		case errors.Is(err, ErrDamaged):
			damaged = append(damaged, err)
		case err != nil:
			unreadable = append(unreadable, fmt.Errorf("%w: %w", ErrUnreadable, err))
		default:
			records = append(records, r)
		}
	}
	return records, damaged, errors.Join(unreadable...)
}

// RecordOf returns the UID of the claim whose record file uses that name, false for another file's name.
func RecordOf(name string) (uid string, isRecord bool) {
	uid, isRecord = strings.CutSuffix(name, recordSuffix)
	return uid, isRecord && checkUID(uid) == nil
}

// path refuses a UID that would leave the directory.
func (s *Store) path(uid string) (string, error) {
	if err := checkUID(uid); err != nil {
		return "", err
	}
	return filepath.Join(s.dirOf(uid+recordSuffix), uid+recordSuffix), nil
}

func checkUID(uid string) error {
	if uid == "" || strings.ContainsAny(uid, "/\x00") || strings.HasPrefix(uid, ".") {
		return fmt.Errorf("claim UID %q cannot name a record file", uid)
	}
	return nil
}
