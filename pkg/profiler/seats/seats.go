// Package seats divides what controllers and plugins answer at once among namespaces and users.
package seats

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"sync"
)

// Bounds are how many requests of a kind are answered at once: of all users together, of one namespace, and of one user. Kept ones are for the
// controllers of the cluster alone, without which no namespace is deleted. Namespaces count as well as users: each can have any number of
// ServiceAccounts.
type Bounds struct{ All, Namespace, User, Kept int }

// Party is what takes a seat: a user, about the reports of a namespace.
type Party struct {
	// Namespace is "" of all, User "" where it is not known.
	Namespace, User string
	// System says that it is one of the cluster's controllers.
	System bool
}

// The parameters of a Party in requests to plugins.
const userParameter, systemParameter = "user", "system"

// Query writes a Party into a request to a plugin, without the name of the user, which may have any length. The plugin knows the namespace.
func (p Party) Query() url.Values {
	name := sha256.Sum256([]byte(p.User))
	query := url.Values{userParameter: {hex.EncodeToString(name[:])}}
	if p.System {
		query.Set(systemParameter, "true")
	}
	return query
}

// ParseParty reads what Query wrote. Controllers of earlier versions write nothing.
func ParseParty(query url.Values, namespace string) Party {
	return Party{Namespace: namespace, User: query.Get(userParameter), System: query.Has(systemParameter)}
}

// Taken counts seats that are taken. The zero value is ready, and can be used concurrently.
type Taken struct {
	mu               sync.Mutex
	all, kept        int
	namespaces, user map[string]int
}

// Enter takes a seat; false: there are as many taken as there may be.
func (t *Taken) Enter(of Bounds, by Party) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by.System {
		if t.kept >= of.Kept {
			return false
		}
		t.kept++
		return true
	}
	if t.all >= of.All || t.namespaces[by.Namespace] >= of.Namespace || by.User != "" && t.user[by.User] >= of.User {
		return false
	}
	if t.user == nil {
		t.user, t.namespaces = map[string]int{}, map[string]int{}
	}
	t.all++
	t.namespaces[by.Namespace]++
	t.user[by.User]++
	return true
}

// Leave gives a seat back.
func (t *Taken) Leave(by Party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by.System {
		t.kept--
		return
	}
	t.all--
	decrement(t.namespaces, by.Namespace)
	decrement(t.user, by.User)
}

// decrement counts one less, and keeps no zero.
func decrement(counts map[string]int, of string) {
	if counts[of]--; counts[of] == 0 {
		delete(counts, of)
	}
}
