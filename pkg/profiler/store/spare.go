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
	// spareFolders is how many folders are made ahead; a burst of more claims makes the rest itself.
	spareFolders = 16
	// sparePrefix begins their names.
	sparePrefix = ".spare-"
	// fillAfter is longer than a pod with several claims takes to be prepared: making folders would slow the next one down.
	fillAfter = 100 * time.Millisecond
)

// spares are folders with empty files that Prepare renames: an ext4 file system takes longer to make directories than all else in it.
type spares struct {
	// making is held while folders are made and removed.
	making *sync.Mutex
	// used has an entry after Prepare has had use for a spare.
	used chan struct{}

	// The store's lock is held for the rest: the names of the spares, and those of the files of the last plan.
	ready, plan []string
}

func newSpares() spares { return spares{making: &sync.Mutex{}, used: make(chan struct{}, 1)} }

// use gives a claim that has no folder a spare, and reports whether it did. The process that stores reports alone has some.
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

// KeepSpares makes folders ahead once claims are prepared, until the context ends, and removes those that are left. Where it cannot, Prepare
// makes them and says why that fails, and a sweep removes them.
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

// FillSpares makes folders ahead if half of them are used: several together cost a file system less than each alone. It makes none before
// the first claim was prepared.
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

// IsSpare reports whether a folder is one that this process has made ahead.
func (s *Store) IsSpare(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.spares.ready, name)
}

// makeSpare makes one. The next sweep removes what is left of one that could not be made.
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

// removeSpares removes those of other processes among the folders. Its process may rename one for a claim meanwhile: the first
// rename decides.
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
