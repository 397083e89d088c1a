package reports

import (
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
)

// seats are how many requests of a kind are answered at once: of all users together, of one namespace, and of one user. Kept ones are for the
// controllers of the cluster alone, without which no namespace is deleted.
type seats struct{ all, namespace, user, kept int }

const (
	// maxLists bounds the memory of all lists, of which each takes maxCost and aheadCost at most; systemLists of them are those of the cluster's
	// controllers. namespaceLists and userLists keep one namespace and one user from taking all: any namespace can have many
	// ServiceAccounts, so both are counted.
	maxLists, systemLists     = 5, 1
	namespaceLists, userLists = 2, 2
)

// listSeats are those of lists.
var listSeats = seats{all: maxLists - systemLists, namespace: namespaceLists, user: userLists, kept: systemLists}

// party is what takes a seat: a user, about the reports of a namespace.
type party struct {
	namespace, user string
	// system says that it is one of the cluster's controllers.
	system bool
}

// partyOf is the party of a request: the namespace is that of the reports, "" of all.
func partyOf(by user.Info, namespace string) party {
	return party{namespace: namespace, user: by.GetName(), system: isSystem(by)}
}

// isSystem reports whether a user is a controller of the cluster. ServiceAccounts of other namespaces and nodes have names of the same prefix.
func isSystem(by user.Info) bool {
	return by.GetName() == user.KubeControllerManager || strings.HasPrefix(by.GetName(), "system:serviceaccount:kube-system:")
}

// taken counts seats that are taken.
type taken struct {
	mu               sync.Mutex
	all, kept        int
	namespaces, user map[string]int
}

// enter takes a seat; false: there are as many taken as there may be.
func (t *taken) enter(of seats, by party) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by.system {
		if t.kept >= of.kept {
			return false
		}
		t.kept++
		return true
	}
	if t.all >= of.all || t.namespaces[by.namespace] >= of.namespace || t.user[by.user] >= of.user {
		return false
	}
	if t.user == nil {
		t.user, t.namespaces = map[string]int{}, map[string]int{}
	}
	t.all++
	t.namespaces[by.namespace]++
	t.user[by.user]++
	return true
}

// leave gives a seat back.
func (t *taken) leave(by party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by.system {
		t.kept--
		return
	}
	t.all--
	decrement(t.namespaces, by.namespace)
	decrement(t.user, by.user)
}

// decrement counts one less, and keeps no zero.
func decrement(counts map[string]int, of string) {
	if counts[of]--; counts[of] == 0 {
		delete(counts, of)
	}
}
