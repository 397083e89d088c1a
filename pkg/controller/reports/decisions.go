package reports

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	authorizationapi "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// allowedTime and deniedTime are the validity of a decision: a revoked right ends after allowedTime, and a granted right begins after
	// deniedTime.
	allowedTime, deniedTime = 10 * time.Second, 5 * time.Second
	// maxDecisions limits the number of stored decisions, and maxDecisionKey the key of each: users with longer keys are reviewed every
	// time.
	maxDecisions, maxDecisionKey = 4096, 2 << 10
)

// Decisions caches decisions of a Reviewer, so that many requests of a user cost the API server one review. Use NewDecisions.
type Decisions struct {
	reviewer   Reviewer
	namespaces Namespaces
	cache      *utilcache.LRUExpireCache
}

// NewDecisions caches the decisions of a reviewer. Decisions about a namespace do not apply to a later namespace of that name.
func NewDecisions(of Reviewer, namespaces Namespaces) *Decisions {
	return &Decisions{reviewer: of, namespaces: namespaces, cache: utilcache.NewLRUExpireCache(maxDecisions)}
}

// decision is the result of a reviewer.
type decision struct {
	allowed bool
	reason  string
}

// Allowed implements Reviewer. It asks once for the user's right to all reports of a namespace. Only without that right it asks for each
// report, because of roles with resourceNames. The API server has already reviewed the request with the name. Errors are not cached.
func (d *Decisions) Allowed(ctx context.Context, by user.Info, what authorizationapi.ResourceAttributes) (bool, string, error) {
	name := what.Name
	what.Name = ""
	allowed, reason, err := d.decide(ctx, by, what)
	if name == "" || allowed || err != nil {
		return allowed, reason, err
	}
	what.Name = name
	return d.decide(ctx, by, what)
}

func (d *Decisions) decide(ctx context.Context, by user.Info, what authorizationapi.ResourceAttributes) (bool, string, error) {
	key, err := decisionKey(by, what, d.namespaces.Known(ctx, what.Namespace))
	if err != nil {
		return false, "", err
	}
	if known, found := d.cache.Get(key); found {
		if one, ok := known.(decision); ok {
			return one.allowed, one.reason, nil
		}
	}
	allowed, reason, err := d.reviewer.Allowed(ctx, by, what)
	if err != nil || len(key) > maxDecisionKey {
		return allowed, reason, err
	}
	holds := deniedTime
	if allowed {
		holds = allowedTime
	}
	d.cache.Add(key, decision{allowed, reason}, holds)
	return allowed, reason, nil
}

// decisionKey encodes everything that a decision depends on, without collisions.
func decisionKey(by user.Info, what authorizationapi.ResourceAttributes, namespace types.UID) (string, error) {
	groups := slices.Sorted(slices.Values(by.GetGroups()))
	raw, err := json.Marshal([]any{by.GetName(), by.GetUID(), groups, by.GetExtra(), what.Verb, what.Resource, what.Subresource, what.Namespace, namespace, what.Name})
	if err != nil {
		return "", fmt.Errorf("reviewing the access of user %s: %w", by.GetName(), err)
	}
	return string(raw), nil
}
