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
	// allowedTime and deniedTime are how long a decision holds: a right that is taken away ends after allowedTime, and one that is granted begins
	// after deniedTime.
	allowedTime, deniedTime = 10 * time.Second, 5 * time.Second
	// maxDecisions bounds what is remembered, and maxDecisionKey the key of each: users with longer ones are reviewed every time.
	maxDecisions, maxDecisionKey = 4096, 2 << 10
)

// Decisions remembers what a Reviewer decided, so that many requests of a user cost the API server one review. Use NewDecisions.
type Decisions struct {
	reviewer   Reviewer
	namespaces Namespaces
	cache      *utilcache.LRUExpireCache
}

// NewDecisions remembers the decisions of a reviewer. Those about a namespace are none of a later one of its name.
func NewDecisions(of Reviewer, namespaces Namespaces) *Decisions {
	return &Decisions{reviewer: of, namespaces: namespaces, cache: utilcache.NewLRUExpireCache(maxDecisions)}
}

// decision is what a reviewer said.
type decision struct {
	allowed bool
	reason  string
}

// Allowed implements Reviewer. What a user may do to all reports of a namespace is asked once, and only without that right, for roles with
// resourceNames, about each report. The API server has reviewed the request with the name before it came here. Errors are not remembered.
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

// decisionKey is all that a decision depends on, in a form in which no two are alike.
func decisionKey(by user.Info, what authorizationapi.ResourceAttributes, namespace types.UID) (string, error) {
	groups := slices.Sorted(slices.Values(by.GetGroups()))
	raw, err := json.Marshal([]any{by.GetName(), by.GetUID(), groups, by.GetExtra(), what.Verb, what.Subresource, what.Namespace, namespace, what.Name})
	if err != nil {
		return "", fmt.Errorf("reviewing the access of user %s: %w", by.GetName(), err)
	}
	return string(raw), nil
}
