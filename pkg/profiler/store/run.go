package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// scanEvery is how often inboxes are scanned while a process is recorded, idleEvery how often otherwise.
	scanEvery = 2 * time.Second
	idleEvery = 30 * time.Second
	// quiet is how many bytes an inbox that was emptied may have: folders take some.
	quiet = 1 << 20
)

// wake lets Run find claims that are not watched yet.
func (s *Store) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run scans until the context ends: soon after an inbox got a session, and regularly. However much a container writes, there is at most one
// scan in scanEvery. Where inboxes cannot be watched it scans them once.
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

// active says that a report is on its way, or that containers go on writing after their recording was stopped.
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
