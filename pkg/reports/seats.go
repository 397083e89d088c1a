package reports

import (
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/prism-gpu/prism/pkg/profiler/seats"
)

const (
	// maxLists bounds the memory of all lists, of which each takes maxCost and aheadCost at most; systemLists of them are those of the cluster's
	// controllers. namespaceLists and userLists keep one namespace and one user from taking all.
	maxLists, systemLists     = 5, 1
	namespaceLists, userLists = 2, 2
)

// listSeats are those of lists.
var listSeats = seats.Bounds{All: maxLists - systemLists, Namespace: namespaceLists, User: userLists, Kept: systemLists}

// partyOf is the party of a request: the namespace is that of the reports, "" of all.
func partyOf(by user.Info, namespace string) seats.Party {
	return seats.Party{Namespace: namespace, User: by.GetName(), System: isSystem(by)}
}

// isSystem reports whether a user is a controller of the cluster. ServiceAccounts of other namespaces and nodes have names of the same prefix.
func isSystem(by user.Info) bool {
	return by.GetName() == user.KubeControllerManager || strings.HasPrefix(by.GetName(), "system:serviceaccount:kube-system:")
}
