package store

import (
	"errors"
	"fmt"
	"time"
)

// ErrFollowing means that a report cannot be changed here, because another process of the node stores reports.
var ErrFollowing = errors.New("another process on the node stores reports; try again")

// Lead reads all indexes again, and lets the store write them from now on: no other process writes them any more.
func (s *Store) Lead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following = false
	err := s.read()
	s.following = err != nil
	return err
}

// compactEvery is the number of claims that are read until excess reports are dropped: the node may store reports of thousands of claims.
const compactEvery = 64

// read reads all indexes, and drops reports above the limits.
func (s *Store) read() error {
	names, err := s.Files.List(s.Dir)
	if err != nil {
		return fmt.Errorf("reading the profiles of the node: %w", err)
	}
	collectors, err := s.collectorFolders()
	if err != nil {
		return err
	}
	found := map[string]*index{}
	for _, uid := range names {
		if !uidPattern.MatchString(uid) {
			continue
		}
		read, err := s.load(uid)
		if err != nil {
			s.Failed(uid, err)
			continue
		}
		if read != nil {
			found[uid] = read
		}
		if len(found)%compactEvery == 0 {
			dropFileless(found)
		}
	}
	dropFileless(found)
	s.claims = found
	s.mark(collectors)
	s.identities.next = map[string]time.Time{}
	s.wake()
	return nil
}
