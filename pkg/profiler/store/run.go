package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// scanEvery is how often inboxes are scanned while a process is recorded, idleEvery how often otherwise.
	scanEvery = 2 * time.Second
	idleEvery = 30 * time.Second
)

// wake lets Run find claims that are not watched yet.
func (s *Store) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run scans until the context ends: soon after an inbox got a session, and regularly. However much a container writes, there is at most one
// scan in scanEvery.
func (s *Store) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the inboxes of profiles: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	watched := map[string]bool{}
	for {
		s.watch(watcher, watched)
		s.Scan()
		pause := time.After(scanEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-pause:
		}
		s.await(ctx, watcher)
	}
}

// await returns when there is something to scan.
func (s *Store) await(ctx context.Context, watcher *fsnotify.Watcher) {
	if drained(watcher) || s.active() {
		return
	}
	select {
	case <-ctx.Done():
	case <-watcher.Events:
	case <-watcher.Errors: //nolint:errcheck // some events are lost: a scan finds what they were about
	case <-s.changed:
	case <-time.After(idleEvery):
	}
}

// drained takes the events that are there, and reports whether there were any: they may be about what the last scan did not see.
func drained(watcher *fsnotify.Watcher) (found bool) {
	for {
		select {
		case <-watcher.Events:
		case <-watcher.Errors: //nolint:errcheck // as in await
		default:
			return found
		}
		found = true
	}
}

// active says that a report is on its way, or an inbox too large.
func (s *Store) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		if c.Stopped != nil && !c.Truncated {
			return true
		}
		for _, r := range c.Reports {
			if !r.State.Final() {
				return true
			}
		}
	}
	return false
}

// watch watches the inboxes of claims that are prepared.
func (s *Store) watch(watcher *fsnotify.Watcher, watched map[string]bool) {
	s.mu.Lock()
	prepared := map[string]bool{}
	for uid, c := range s.claims {
		if !c.Released {
			prepared[uid] = true
		}
	}
	s.mu.Unlock()
	for uid := range watched {
		if !prepared[uid] {
			_ = watcher.Remove(s.path(uid, inboxDir))
			delete(watched, uid)
		}
	}
	for uid := range prepared {
		// Where the system has no more watches, the regular scan finds sessions.
		if !watched[uid] && watcher.Add(s.path(uid, inboxDir)) == nil {
			watched[uid] = true
		}
	}
}

// Sweep deletes reports whose retention has passed, and the folders of claims that are not prepared and have none. Claims that prepared
// does not have are released: their containers are gone. It is called after the claims of the store were listed: a claim that is prepared
// has a record before it has a folder.
func (s *Store) Sweep(prepared func() (map[string]bool, error)) error {
	s.mu.Lock()
	seen := map[string]int{} // how often each was prepared
	for uid, c := range s.claims {
		seen[uid] = c.prepares
	}
	s.mu.Unlock()
	folders, err := s.Files.List(s.Dir)
	if err != nil {
		return fmt.Errorf("reading the profiles of the node: %w", err)
	}
	has, err := prepared()
	if err != nil {
		return err
	}
	for uid, prepares := range seen {
		err = errors.Join(err, s.expire(uid))
		if !has[uid] {
			err = errors.Join(err, s.drop(uid, prepares))
		}
	}
	for _, uid := range folders {
		if _, known := seen[uid]; !known && !has[uid] && uidPattern.MatchString(uid) {
			err = errors.Join(err, s.collectGarbage(uid))
		}
	}
	return err
}

// collectGarbage removes a folder without an index: a kill came between them. One whose index is damaged stays and is named in the log.
func (s *Store) collectGarbage(uid string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[uid] != nil {
		return nil
	}
	if _, err := s.Files.Read(s.path(uid, indexFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.Files.RemoveDir(s.path(uid))
}

// expire deletes reports whose retention has passed.
func (s *Store) expire(uid string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil || c.Claim.Retention <= 0 {
		return nil
	}
	limit := s.Now().Add(-c.Claim.Retention)
	for i := len(c.Reports) - 1; i >= 0; i-- {
		r := c.Reports[i]
		if r.State.Final() && (r.Ended == nil || r.Ended.Before(limit)) {
			err = errors.Join(err, s.remove(c, r))
		}
	}
	return err
}

// drop releases a claim, and removes its folder if it has neither reports nor sessions, unless it was prepared again meanwhile.
func (s *Store) drop(uid string, prepares int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil || c.prepares != prepares {
		return nil
	}
	if err := s.release(c); err != nil || len(c.Reports) > 0 {
		return err
	}
	names, err := s.Files.List(s.path(uid, inboxDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		if sessionPattern.MatchString(name) {
			return nil // the next scan takes it over
		}
	}
	if err := s.Files.RemoveDir(s.path(uid)); err != nil {
		return fmt.Errorf("removing the profile of claim %s: %w", uid, err)
	}
	delete(s.claims, uid)
	return nil
}
