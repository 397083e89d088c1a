package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// spareFolders is the number of folders that are created in advance; for a burst of more claims, Prepare creates the rest.
	spareFolders = 16
	// sparePrefix is the prefix of their names.
	sparePrefix = ".spare-"
	// fillAfter is longer than the preparation of a pod with several claims, which creating folders would slow down.
	fillAfter = 100 * time.Millisecond
)

// spares are folders with empty files that Prepare renames: an ext4 file system takes longer to create directories than for everything else
// in Prepare.
type spares struct {
	// making is held while folders are created and removed.
	making *sync.Mutex
	// used contains an entry after Prepare needed a spare.
	used chan struct{}

	// The store's lock protects the rest: the names of the spares, and of the files of the last plan.
	ready, plan []string
}

func newSpares() spares { return spares{making: &sync.Mutex{}, used: make(chan struct{}, 1)} }

// use renames a spare for a claim without a folder, and reports whether it did. Only the process that stores reports creates spares.
func (p *spares) use(s *Store, uid string, plan map[string][]byte) bool {
	if s.following || s.claims[uid] != nil {
		return false
	}
	if _, err := os.Lstat(s.path(uid)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	p.plan = slices.Sorted(maps.Keys(plan))
	select {
	case p.used <- struct{}{}:
	default:
	}
	if len(p.ready) == 0 {
		return false
	}
	spare := p.ready[len(p.ready)-1]
	p.ready = p.ready[:len(p.ready)-1]
	return s.Files.Rename(filepath.Join(s.Dir, spare), s.path(uid)) == nil
}

// KeepSpares creates folders in advance once claims are prepared, until the context ends, and then removes the unused ones. If that fails,
// Prepare creates them and reports the error, and a sweep removes the leftovers.
func (s *Store) KeepSpares(ctx context.Context) {
	defer s.discardSpares()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.spares.used:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(fillAfter):
		}
		_ = s.FillSpares()
	}
}

func (s *Store) discardSpares() {
	s.spares.making.Lock()
	defer s.spares.making.Unlock()
	s.mu.Lock()
	left := s.spares.ready
	s.spares.ready = nil
	s.mu.Unlock()
	for _, name := range left {
		_ = s.Files.RemoveDir(filepath.Join(s.Dir, name))
	}
}

// FillSpares creates folders in advance if half of them are used: creating several together costs a file system less. It creates none
// before the first claim was prepared.
func (s *Store) FillSpares() error {
	s.spares.making.Lock()
	defer s.spares.making.Unlock()
	s.mu.Lock()
	missing, plan := spareFolders-len(s.spares.ready), s.spares.plan
	if s.following || plan == nil || missing < spareFolders/2 {
		missing = 0
	}
	s.mu.Unlock()
	for range missing {
		name, err := s.makeSpare(plan)
		if err != nil {
			return fmt.Errorf("creating a spare folder for a profile: %w", err)
		}
		s.mu.Lock()
		s.spares.ready = append(s.spares.ready, name)
		s.mu.Unlock()
	}
	return nil
}

// IsSpare reports whether this process created the folder in advance.
func (s *Store) IsSpare(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.spares.ready, name)
}

// makeSpare creates a spare. After an error, the next sweep removes the leftovers.
func (s *Store) makeSpare(plan []string) (name string, err error) {
	name = sparePrefix + strings.ToLower(rand.Text())
	for _, dir := range claimFolders {
		if err := s.Files.MakeDir(filepath.Join(s.Dir, name, dir.name), dir.perm); err != nil {
			return "", err
		}
	}
	for _, file := range plan {
		if err := s.Files.Write(filepath.Join(s.Dir, name, planDir, file), nil, planPerm, false); err != nil {
			return "", err
		}
	}
	return name, s.Files.Write(filepath.Join(s.Dir, name, indexFile), nil, indexPerm, false)
}

// removeSpares removes spares of other processes among the folders. Such a process may rename a spare for a claim at the same time: the
// first rename decides.
func (s *Store) removeSpares(folders []string) (err error) {
	s.spares.making.Lock()
	defer s.spares.making.Unlock()
	s.mu.Lock()
	following := s.following
	s.mu.Unlock()
	for _, name := range folders {
		if following || !strings.HasPrefix(name, sparePrefix) || s.IsSpare(name) {
			continue
		}
		dropped := s.droppedName(name)
		switch renameErr := s.Files.Rename(filepath.Join(s.Dir, name), dropped); {
		case renameErr == nil:
			err = errors.Join(err, s.removeDir(dropped))
		case !errors.Is(renameErr, fs.ErrNotExist):
			err = errors.Join(err, renameErr)
		}
	}
	return err
}
