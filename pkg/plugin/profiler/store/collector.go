package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// collectorFolders lists the directory of prism-collector, which also contains other files.
func (s *Store) collectorFolders() (names []string, err error) {
	if s.Collector == "" {
		return nil, nil
	}
	if names, err = s.Files.List(s.Collector); err != nil {
		return nil, fmt.Errorf("reading the directory of the collector: %w", err)
	}
	return names, nil
}

// mark marks the claims with a folder in the directory of prism-collector. Their index does not say that: the process that created the folder
// may have been killed before it wrote the index, or the claim was prepared again without counters. Hold the lock.
func (s *Store) mark(names []string) {
	for _, name := range names {
		if c := s.claims[name]; c != nil {
			c.collector, c.idle = true, false
		}
	}
}

// dropCollected removes the folder of a claim in the directory of prism-collector, if the claim is released or its counters are no longer
// recorded, and nothing remains to be processed. prepared: the claim has a record, also if another process prepared it.
func (s *Store) dropCollected(uid string, prepared bool) (err error) {
	s.mu.Lock()
	c, dropped := s.claims[uid], ""
	if c != nil && c.collector && !s.following {
		needed := s.withCounters(c.Claim) && (prepared || !c.Released)
		if !needed && !s.collects(uid) {
			dropped, err = s.setAside(s.Collector, uid)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			c.collector = err != nil
		}
	}
	s.mu.Unlock()
	return s.removeDropped(dropped, err)
}

// collects reports whether prism-collector may write to the folder of a claim, or has left something that a scan processes.
func (s *Store) collects(uid string) bool {
	_, err := os.Lstat(filepath.Join(s.CollectorFolder(uid), counters.OrderFile))
	return !errors.Is(err, fs.ErrNotExist) || contains(s.allFolders(uid, true)[0].Inbox, func(name string) bool {
		return sessionPattern.MatchString(name) || WaitPattern.MatchString(name)
	})
}

// dropOthers removes the folders in the directory of prism-collector that belong to no claim.
func (s *Store) dropOthers(names []string, prepared map[string]bool) (err error) {
	for _, name := range names {
		if uidPattern.MatchString(name) && !prepared[name] {
			err = errors.Join(err, s.dropUnknown(name))
		} else if strings.HasPrefix(name, droppedPrefix) {
			err = errors.Join(err, s.removeDir(s.CollectorFolder(name)))
		}
	}
	return err
}

// dropUnknown removes the folder of a claim that the store does not know, first its order. It keeps the folder of a claim whose index is
// damaged.
func (s *Store) dropUnknown(uid string) (err error) {
	s.mu.Lock()
	dropped := ""
	info, statErr := os.Lstat(s.CollectorFolder(uid))
	_, ownErr := os.Lstat(s.path(uid))
	if s.claims[uid] == nil && !s.following && errors.Is(ownErr, fs.ErrNotExist) && statErr == nil && info.IsDir() {
		if err = s.Files.Remove(filepath.Join(s.CollectorFolder(uid), counters.OrderFile)); err == nil {
			dropped, err = s.setAside(s.Collector, uid)
		}
	}
	s.mu.Unlock()
	return s.removeDropped(dropped, err)
}
