package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// Prepare creates the folder of a claim with the files of its plan, by name, and repairs missing or changed ones. It syncs nothing: after a
// power cut the next Prepare creates them again.
func (s *Store) Prepare(claim Claim, plan map[string][]byte) error {
	if !uidPattern.MatchString(claim.UID) {
		return fmt.Errorf("creating the profile of claim %q: the UID is not a valid directory name", claim.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	isNew := s.isNew(claim.UID)
	if err := s.folders(claim); err != nil {
		return fmt.Errorf("creating the profile of claim %s: %w", claim.UID, err)
	}
	if isNew {
		return s.begin(claim, s.selecting(claim, false, plan))
	}
	known, err := s.known(claim.UID)
	if err != nil {
		return err
	}
	plan = s.selecting(claim, known.Armed, plan)
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		content := plan[name]
		if err := s.renew(s.path(claim.UID, planDir, name), content); err != nil {
			return fmt.Errorf("creating the profile of claim %s: %w", claim.UID, err)
		}
	}
	known.prepares++
	known.collector = known.collector || s.withCounters(claim)
	if known.Claim == claim && !known.Released {
		return nil
	}
	next := *known
	next.Claim, next.Released = claim, false
	if err := s.save(&next); err != nil {
		return err
	}
	s.claims[claim.UID] = &next
	s.identities.wake()
	s.wake()
	return nil
}

// isNew reports whether a claim has no folder and never had one.
func (s *Store) isNew(uid string) bool {
	if s.following || s.claims[uid] != nil {
		return false
	}
	_, err := os.Lstat(s.path(uid))
	return errors.Is(err, fs.ErrNotExist)
}

// begin writes the files of a claim into its new folder. They need no temporary names: nothing reads them yet, and the next Prepare repairs
// files that a kill or a power cut left incomplete.
func (s *Store) begin(claim Claim, plan map[string][]byte) error {
	c := &index{Schema: schema, Claim: claim, inMemory: inMemory{prepares: 1, collector: s.withCounters(claim)}}
	raw, err := json.Marshal(c)
	for _, name := range slices.Sorted(maps.Keys(plan)) {
		content := plan[name]
		if err == nil {
			err = s.Files.Write(s.path(claim.UID, planDir, name), content, planPerm, false)
		}
	}
	if err == nil {
		err = s.Files.Write(s.path(claim.UID, indexFile), raw, indexPerm, false)
	}
	if err != nil {
		return fmt.Errorf("creating the profile of claim %s: %w", claim.UID, err)
	}
	s.claims[claim.UID] = c
	s.identities.wake()
	s.wake()
	return nil
}

// known returns the index of a claim that is being prepared, or a new one. A damaged index is renamed: it does not prevent the claim's
// container from starting, and is not overwritten.
func (s *Store) known(uid string) (*index, error) {
	if c := s.claims[uid]; c != nil && !s.following {
		return c, nil
	}
	// The process that stores reports may have written more in the meantime, and an index that was unreadable at the start may be readable
	// now.
	c, err := s.load(uid)
	if errors.Is(err, errDamaged) {
		s.failed(uid, err)
		err = s.Files.Rename(s.path(uid, indexFile), s.path(uid, damagedFile))
	}
	if c == nil && err == nil {
		c = &index{Schema: schema}
	}
	return c, err
}

// Release marks a claim whose containers are gone: its remaining sessions have ended. Its reports stay.
func (s *Store) Release(claimUID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release(s.claims[claimUID])
}

func (s *Store) release(c *index) error {
	if c == nil || c.Released || s.following {
		return nil // Sweep informs the process that stores reports
	}
	c.Released, c.idle = true, false
	c.prepares++
	s.wake()
	return s.save(c)
}

// claimFolders are the folders of a claim. Two of them are mounted in containers. No other user of the node, for example an importer, can
// reach the inbox, which is writable for every user.
var claimFolders = []struct {
	name string
	perm fs.FileMode
	// byHand: only for a claim whose processes wait, and may watch the folder from their start.
	byHand bool
}{
	{"", 0o700, false}, {planDir, 0o755, false}, {inboxDir, 0o777 | fs.ModeSticky, false}, {planDir + "/" + session.ControlFolder, 0o755, true},
}

// Permissions of the files of a plan and of an index.
const planPerm, indexPerm fs.FileMode = 0o644, 0o600

// folders creates missing folders of a claim, and corrects their permissions.
func (s *Store) folders(claim Claim) error {
	for _, dir := range claimFolders {
		if dir.byHand && !claim.ByHand.Waits {
			continue
		}
		if err := s.folder(s.path(claim.UID, dir.name), dir.perm); err != nil {
			return err
		}
	}
	if !s.withCounters(claim) {
		return nil
	}
	collectors := s.allFolders(claim.UID, true)[0]
	for _, path := range []string{
		s.Collector, s.CollectorFolder(claim.UID), collectors.Plan, filepath.Join(collectors.Plan, session.ControlFolder), collectors.Inbox,
	} {
		if err := s.folder(path, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// folder creates a missing folder, and corrects its permissions.
func (s *Store) folder(path string, perm fs.FileMode) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode() == perm|fs.ModeDir {
		return nil
	}
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	return s.Files.MakeDir(path, perm)
}

// renew writes a file that is missing or differs. No container reads it before Prepare has returned, and the next Prepare repairs an
// incomplete one, so it needs no temporary name.
func (s *Store) renew(path string, content []byte) error {
	there, err := s.Files.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.Files.Write(path, content, planPerm, false)
	case err != nil:
		return err
	case bytes.Equal(there, content):
		return nil
	}
	return disk.Replace(s.Files, path, content, planPerm, false)
}
