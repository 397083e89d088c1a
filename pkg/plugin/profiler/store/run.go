package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// scanEvery is the interval of scans while a process is recorded, idleEvery the interval otherwise.
	scanEvery = 2 * time.Second
	idleEvery = 30 * time.Second
	// quiet is the maximum number of bytes of an emptied inbox: folders take some.
	quiet = 1 << 20
)

// wake makes Run check for new claims.
func (s *Store) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run scans until the context ends: soon after a session was added to an inbox, and regularly, but at most once in scanEvery, regardless of
// the amount that a container writes. If inboxes cannot be watched, it scans them once.
func (s *Store) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		s.Scan(ctx)
		return fmt.Errorf("watching the inboxes of profiles: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	watched := map[string]bool{}
	for {
		s.watch(watcher, watched)
		s.Scan(ctx)
		pause := time.After(scanEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-pause:
		}
		s.await(ctx, watcher)
	}
}

// await returns when a scan is due.
func (s *Store) await(ctx context.Context, watcher *fsnotify.Watcher) {
	if drained(watcher) || s.active() {
		return
	}
	select {
	case <-ctx.Done():
	case <-watcher.Events:
	case <-watcher.Errors: //nolint:errcheck // events may be lost, but a scan finds their changes
	case <-s.changed:
	case <-time.After(idleEvery):
	}
}

// drained consumes pending events, and reports whether there were any: they may be about changes that the last scan did not see.
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

// active reports whether a report is in progress, or containers continue to write after their recording was stopped.
func (s *Store) active() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.claims {
		if c.rests() {
			continue
		}
		if c.Stopped != nil && (!c.Truncated || c.inbox > quiet) {
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

// watch watches the inboxes of prepared claims.
func (s *Store) watch(watcher *fsnotify.Watcher, watched map[string]bool) {
	s.mu.Lock()
	inboxes := map[string]bool{}
	for uid, c := range s.claims {
		if c.Released {
			continue
		}
		for _, of := range s.allFolders(uid, c.collector) {
			inboxes[of.Inbox] = true
		}
	}
	s.mu.Unlock()
	for path := range watched {
		if !inboxes[path] {
			_ = watcher.Remove(path)
			delete(watched, path)
		}
	}
	for path := range inboxes {
		// If the system has no more watches, the regular scan finds sessions.
		if !watched[path] && watcher.Add(path) == nil {
			watched[path] = true
		}
	}
}
