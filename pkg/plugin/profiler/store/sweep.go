package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Sweep deletes reports whose retention has passed, or whose namespace was deleted, and the folders of unprepared claims without reports,
// also those of prism-collector. Claims that prepared does not return are released: their containers are gone. It is called after the claims
// of the store were listed: the record of a claim is created before its folder.
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
	collectors, err := s.collectorFolders()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.mark(collectors)
	s.mu.Unlock()
	has, err := prepared()
	if err != nil {
		return err
	}
	for uid, prepares := range seen {
		err = errors.Join(err, s.expire(uid), s.dropCollected(uid, has[uid]))
		if has[uid] {
			err = errors.Join(err, s.reclaim(uid, prepares))
		} else {
			err = errors.Join(err, s.drop(uid, prepares))
		}
	}
	for _, name := range folders {
		if _, known := seen[name]; !known && !has[name] && uidPattern.MatchString(name) {
			err = errors.Join(err, s.collectGarbage(name))
		} else if strings.HasPrefix(name, droppedPrefix) {
			err = errors.Join(err, s.removeDir(filepath.Join(s.Dir, name)))
		}
	}
	return errors.Join(err, s.dropOthers(collectors, has))
}

// droppedPrefix is the prefix of folders of claims that are being removed.
const droppedPrefix = ".dropped-"

// removeDir removes a folder with any contents from containers. If that takes several calls, the next sweep continues.
func (s *Store) removeDir(path string) error {
	if err := s.Files.RemoveDir(path); err != nil && !errors.Is(err, disk.ErrManyEntries) {
		return err
	}
	return nil
}

// reclaim prevents that a prepared claim is released by mistake, because the process that prepared it is not the one that stores reports.
func (s *Store) reclaim(uid string, prepares int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil || c.prepares != prepares || !c.Released || s.following {
		return nil
	}
	c.Released = false
	s.wake()
	return s.save(c)
}

// collectGarbage removes a folder without an index, because of a kill in between. A folder with a damaged index stays and is logged.
func (s *Store) collectGarbage(uid string) error {
	s.mu.Lock()
	if s.claims[uid] != nil {
		s.mu.Unlock()
		return nil
	}
	c, err := s.load(uid)
	dropped := ""
	if c == nil && err == nil {
		dropped, err = s.setAside(s.Dir, uid)
	}
	s.mu.Unlock()
	return s.removeDropped(dropped, err)
}

// setAside renames the folder of a claim to an unused name: nothing waits for its removal, which may take long, and a claim that is prepared
// in the meantime gets a new one.
func (s *Store) setAside(dir, uid string) (dropped string, err error) {
	dropped = filepath.Join(dir, droppedPrefix+uid+"-"+strconv.FormatInt(s.Now().UnixNano(), 36))
	if err := s.Files.Rename(filepath.Join(dir, uid), dropped); err != nil {
		return "", fmt.Errorf("removing the profile of claim %s: %w", uid, err)
	}
	return dropped, nil
}

// removeDropped removes the folder if setAside renamed it.
func (s *Store) removeDropped(dropped string, err error) error {
	if dropped == "" || err != nil {
		return err
	}
	return s.removeDir(dropped)
}

// expire deletes reports whose retention has passed, or whose namespace was deleted.
func (s *Store) expire(uid string) error {
	gone, err := s.cutExpired(uid)
	return errors.Join(err, s.free(uid, gone))
}

func (s *Store) cutExpired(uid string) ([]*report.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[uid]
	if c == nil {
		return nil, nil
	}
	now := s.Now()
	return s.cut(c, func(r *report.Report) bool { return c.expired(r, now) || c.confirmed && deletable(c, r) })
}

// drop releases a claim, and removes its folder if it contains neither reports nor sessions, unless it was prepared again in the meantime.
func (s *Store) drop(uid string, prepares int) error {
	s.mu.Lock()
	c, dropped := s.claims[uid], ""
	if c == nil || c.prepares != prepares {
		s.mu.Unlock()
		return nil
	}
	err := s.release(c)
	if err == nil && len(c.Reports) == 0 && !c.collector && !s.following && !s.holds(uid) {
		if dropped, err = s.setAside(s.Dir, uid); err == nil {
			delete(s.claims, uid)
		}
	}
	s.mu.Unlock()
	return s.removeDropped(dropped, err)
}

// holds reports whether the folder of a claim without reports must be kept: because of a session, which the next scan processes, or of its
// former damaged index.
func (s *Store) holds(uid string) bool {
	if _, err := os.Lstat(s.path(uid, damagedFile)); err == nil {
		return true
	}
	return contains(s.Folders(uid).Inbox, sessionPattern.MatchString)
}

// contains reports whether an inbox has an entry with such a name, among those that a scan reads.
func contains(path string, is func(name string) bool) bool {
	inbox, err := untrusted.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer inbox.Close()
	names, _, _ := untrusted.Entries(inbox, maxEntries)
	return slices.ContainsFunc(names, is)
}
