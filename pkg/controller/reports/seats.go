package reports

import (
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

const (
	// maxLists limits the memory of all lists, each of which takes at most maxCost and aheadCost; systemLists of them are reserved for the
	// cluster's controllers. namespaceLists and userLists prevent one namespace or one user from taking all.
	maxLists, systemLists     = 5, 1
	namespaceLists, userLists = 2, 2
)

// listSeats are the limits of lists.
var listSeats = seats.Bounds{All: maxLists - systemLists, Namespace: namespaceLists, User: userLists, Kept: systemLists}

// partyOf returns the party of a request: the namespace is the namespace of the reports, "" for all.
func partyOf(by user.Info, namespace string) seats.Party {
	return seats.Party{Namespace: namespace, User: by.GetName(), System: isSystem(by)}
}

// isSystem reports whether a user is a controller of the cluster. Names of ServiceAccounts of other namespaces, and of nodes, start with
// the same prefix.
func isSystem(by user.Info) bool {
	return by.GetName() == user.KubeControllerManager || strings.HasPrefix(by.GetName(), "system:serviceaccount:kube-system:")
}
