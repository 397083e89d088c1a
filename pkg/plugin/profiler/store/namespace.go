package store

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"time"

	"github.com/prism-gpu/prism/pkg/profiler/report"
)

const (
	// namespaceCheck is the interval at which a namespace is checked, plus up to half of it: 1,000 nodes with reports of 20 namespaces each
	// send one request per second together.
	namespaceCheck = 6 * time.Hour
	// namespacePause is the minimum time between two rounds of requests, namespaceRetry the pause after failed requests.
	namespacePause = time.Second
	namespaceRetry = time.Minute
	// namespaceConfirm is the minimum time between two answers that a namespace was deleted, before its reports are removed: one answer may
	// be wrong.
	namespaceConfirm = time.Minute
	// namespaceSkew is the maximum difference between the clocks of the node and of an API server.
	namespaceSkew = time.Minute
)

// Namespace distinguishes a namespace from earlier and later ones of its name. The zero value stands for no namespace.
type Namespace struct {
	UID     string
	Created time.Time
}

// identities contains the state of the claims' namespaces. The store's lock is held.
type identities struct {
	// next is the time of the next check, by name.
	next map[string]time.Time
	// wanted contains an entry if there may be something to check at once.
	wanted chan struct{}
}

func newIdentities() identities {
	return identities{next: map[string]time.Time{}, wanted: make(chan struct{}, 1)}
}

func (n identities) wake() {
	select {
	case n.wanted <- struct{}{}:
	default:
	}
}

// doubt schedules an early check of a namespace, because a controller knows a different one of that name.
func (n identities) doubt(name string) {
	delete(n.next, name)
	n.wake()
}

// Cluster reads namespaces from the API server, and announces the node's reports. It logs its own errors, and is called again.
type Cluster interface {
	// Namespace returns the current namespace of a name, from the API server's store.
	Namespace(ctx context.Context, name string) (Namespace, error)
	// Announce announces whether the node stores reports, or will.
	Announce(ctx context.Context, keeps bool) error
}

// FollowCluster announces whether the node stores reports, finds the namespace of each claim, and removes the reports of deleted
// namespaces, until the context ends. It checks soon after a claim was prepared, at the start, and when a controller names a different UID.
func (s *Store) FollowCluster(ctx context.Context, of Cluster) {
	var announced *bool
	for {
		if keeps := s.keeps(); (announced == nil || *announced != keeps) && of.Announce(ctx, keeps) == nil {
			announced = &keeps
		}
		for name, claims := range s.unknown() {
			found, err := of.Namespace(ctx, name)
			if err != nil {
				break // the next one would fail as well
			}
			s.compare(name, claims, found)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(namespacePause):
		}
		select {
		case <-ctx.Done():
			return
		case <-s.identities.wanted:
		case <-time.After(namespaceRetry):
		}
	}
}

// keeps reports whether the node stores reports of a claim, or of a claim whose processes may be recorded.
func (s *Store) keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims) > 0
}

// unknown returns the claims in namespaces to check, by namespace. Claims that are prepared later may be in a different namespace of that
// name.
func (s *Store) unknown() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims, due, now := map[string][]string{}, map[string]bool{}, s.Now()
	for uid, c := range s.claims {
		name := c.Claim.Namespace
		claims[name] = append(claims[name], uid)
		next, asked := s.identities.next[name]
		due[name] = due[name] || !asked || !now.Before(next) || c.NamespaceUID == "" && c.ended.IsZero()
	}
	maps.DeleteFunc(s.identities.next, func(name string, _ time.Time) bool { return claims[name] == nil })
	maps.DeleteFunc(claims, func(name string, _ []string) bool { return !due[name] })
	return claims
}

// compare applies the namespace that was read for a name to claims that existed before it was read.
func (s *Store) compare(name string, claims []string, found Namespace) {
	failed, unconfirmed := false, false
	for _, uid := range claims {
		open, err := s.belong(uid, found)
		if err != nil {
			s.Failed(uid, err)
			failed = true
		}
		unconfirmed = unconfirmed || open
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case failed:
		return
	case unconfirmed:
		s.identities.next[name] = s.Now().Add(namespaceConfirm)
		return
	}
	s.identities.next[name] = s.Now().Add(namespaceCheck + rand.N(namespaceCheck/2)) //nolint:gosec // spreads the requests of nodes
}

// belong assigns a claim to a namespace, or to a deleted one. A claim without a known UID, for example from an earlier version's index, is
// in the namespace of its name, unless that was created after the claim was prepared. unconfirmed: it is the first answer that the
// namespace was deleted, which hides reports until the next answer.
func (s *Store) belong(claimUID string, found Namespace) (unconfirmed bool, err error) {
	afterwards := found.Created.After(s.planned(claimUID).Add(namespaceSkew))
	s.mu.Lock()
	c := s.claims[claimUID]
	switch {
	case c == nil, c.confirmed:
		s.mu.Unlock()
		return false, nil
	case found.UID != "" && c.NamespaceUID == found.UID:
		c.ended = time.Time{}
		s.mu.Unlock()
		return false, nil
	case c.NamespaceUID == "" && found.UID != "" && !afterwards:
		c.NamespaceUID, c.changed, c.ended = found.UID, true, time.Time{}
		s.mu.Unlock()
		return false, s.flush(claimUID)
	case c.ended.IsZero():
		c.ended = s.Now()
	}
	c.confirmed = s.Now().Sub(c.ended) >= namespaceConfirm
	confirmed := c.confirmed
	s.mu.Unlock()
	if !confirmed {
		return true, nil
	}
	return false, s.expire(claimUID) // a sweep removes incomplete ones
}

// planned returns the time at which the plan of a claim was first written, which containers cannot change; the current time if it is
// missing. Commands replace files of the plan later. A claim without a plan has no containers that could change its inbox.
func (s *Store) planned(claimUID string) (at time.Time) {
	names, _ := s.Files.List(s.path(claimUID, planDir))
	var paths []string
	for _, name := range names {
		if name != stopFile {
			paths = append(paths, s.path(claimUID, planDir, name))
		}
	}
	if len(paths) == 0 {
		paths = []string{s.path(claimUID, inboxDir)}
	}
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil {
			if at.IsZero() || info.ModTime().Before(at) {
				at = info.ModTime()
			}
		}
	}
	if at.IsZero() {
		return s.Now()
	}
	return at
}

// shown returns a report for an answer.
func (c *index) shown(r *report.Report) report.Report {
	shown := *r
	shown.NamespaceUID = c.NamespaceUID
	return shown
}
