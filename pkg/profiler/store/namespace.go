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
	// namespaceCheck is how long it is not asked again whether a namespace is still the same, half as long again at most: 1,000 nodes with reports
	// of 20 namespaces each ask once a second together.
	namespaceCheck = 6 * time.Hour
	// namespacePause is the shortest time between two rounds of questions, namespaceRetry when those are asked again that had no answer.
	namespacePause = time.Second
	namespaceRetry = time.Minute
	// namespaceConfirm is the shortest time between two answers that a namespace was deleted, before its reports are removed: one answer may be wrong.
	namespaceConfirm = time.Minute
	// namespaceSkew is how much the clocks of the node and of an API server may differ.
	namespaceSkew = time.Minute
)

// Namespace distinguishes a namespace from others of its name, before and after it. The zero value is none.
type Namespace struct {
	UID     string
	Created time.Time
}

// identities are what is known of the namespaces that claims are in. The store's lock is held.
type identities struct {
	// next is when it is asked about one again, by name.
	next map[string]time.Time
	// wanted has an entry where there may be something to ask at once.
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

// doubt has it asked soon whether a namespace is still the same: a controller knows another one of the name.
func (n identities) doubt(name string) {
	delete(n.next, name)
	n.wake()
}

// Cluster is what the API server says of namespaces, and how the node announces its reports. It reports its own errors, and is asked again.
type Cluster interface {
	// Namespace returns the namespace that has a name now, as the API server's store has it.
	Namespace(ctx context.Context, name string) (Namespace, error)
	// Announce says whether the node keeps reports, or will.
	Announce(ctx context.Context, keeps bool) error
}

// FollowCluster announces whether the node keeps reports, finds out which namespace of its name each claim is in, and removes the reports of
// namespaces that were deleted, until the context ends. It asks soon after a claim was prepared, at the start, and when a controller names
// another UID.
func (s *Store) FollowCluster(ctx context.Context, of Cluster) {
	var announced *bool
	for {
		if keeps := s.keeps(); (announced == nil || *announced != keeps) && of.Announce(ctx, keeps) == nil {
			announced = &keeps
		}
		for name, claims := range s.unknown() {
			found, err := of.Namespace(ctx, name)
			if err != nil {
				break // the next one would have the same
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

// keeps reports whether the node has a claim with reports, or one whose processes may make some.
func (s *Store) keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims) > 0
}

// unknown are the claims in namespaces to ask about, by namespace. Claims that are prepared later may be in another one of the name.
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

// compare takes over which namespace has a name, for claims that were there before it was read.
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
	s.identities.next[name] = s.Now().Add(namespaceCheck + rand.N(namespaceCheck/2)) //nolint:gosec // spreads the questions of nodes
}

// belong has a claim be in a namespace, or in one that was deleted. A claim of which no UID is known, as of an earlier version's index, is in the
// namespace of its name, unless that was created after the claim was prepared. Unconfirmed is a first answer that the namespace was deleted, which
// hides reports until the next one.
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
	return false, s.expire(claimUID) // a sweep removes those that are not complete yet
}

// planned is when the plan of a claim was written, which no container can change; now where it is not there.
func (s *Store) planned(claimUID string) (at time.Time) {
	names, _ := s.Files.List(s.path(claimUID, planDir))
	for _, name := range names {
		if info, err := os.Lstat(s.path(claimUID, planDir, name)); err == nil {
			at = later(at, info.ModTime())
		}
	}
	if at.IsZero() {
		return s.Now()
	}
	return at
}

// shown is a report as it is answered.
func (c *index) shown(r *report.Report) report.Report {
	shown := *r
	shown.NamespaceUID = c.NamespaceUID
	return shown
}
