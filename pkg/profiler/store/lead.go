package store

import (
	"errors"
	"fmt"
	"time"
)

// ErrFollowing is why a report cannot be changed here: another process of the node stores reports.
var ErrFollowing = errors.New("another process on the node stores reports; try again")

// Lead reads all indexes again, and has the store write them from now on: no other process does any more.
func (s *Store) Lead() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.following = false
	err := s.read()
	s.following = err != nil
	return err
}

// compactEvery is how many claims are read until the reports are dropped that are too many: the node may have those of thousands.
const compactEvery = 64

// read reads all indexes, and keeps no more reports than the store does.
func (s *Store) read() error {
	names, err := s.Files.List(s.Dir)
	if err != nil {
		return fmt.Errorf("reading the profiles of the node: %w", err)
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
	s.identities.next = map[string]time.Time{}
	s.wake()
	return nil
}
