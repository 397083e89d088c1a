// Package seats divides the concurrent requests of controllers and plugins among namespaces and users.
package seats

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"sync"
)

// Bounds are the maximum numbers of concurrent requests of a kind: of all users together, of one namespace, and of one user. Kept seats are
// reserved for the controllers of the cluster, without which no namespace can be deleted. Namespaces are limited as well as users, because
// each can contain any number of ServiceAccounts.
type Bounds struct{ All, Namespace, User, Kept int }

// Party occupies a seat: a user, for the reports of a namespace.
type Party struct {
	// Namespace is "" for all, User "" if unknown.
	Namespace, User string
	// System is set for the cluster's controllers.
	System bool
}

// The parameters of a Party in requests to plugins.
const userParameter, systemParameter = "user", "system"

// Query writes a Party into a request to a plugin, with a digest of the user's name, which may have any length. The plugin knows the
// namespace.
func (p Party) Query() url.Values {
	name := sha256.Sum256([]byte(p.User))
	query := url.Values{userParameter: {hex.EncodeToString(name[:])}}
	if p.System {
		query.Set(systemParameter, "true")
	}
	return query
}

// ParseParty parses the result of Query. Controllers of earlier versions write nothing.
func ParseParty(query url.Values, namespace string) Party {
	return Party{Namespace: namespace, User: query.Get(userParameter), System: query.Has(systemParameter)}
}

// Taken counts occupied seats. The zero value is ready for use, and safe for concurrent use.
type Taken struct {
	mu               sync.Mutex
	all, kept        int
	namespaces, user map[string]int
}

// Enter takes a seat; false: no seat is free.
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

// Leave frees a seat.
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

// decrement decrements a count, and deletes it at zero.
func decrement(counts map[string]int, of string) {
	if counts[of]--; counts[of] == 0 {
		delete(counts, of)
	}
}
