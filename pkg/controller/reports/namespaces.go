package reports

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// Namespaces returns the current namespace of a name: reports belong to a namespace with a UID, and not to a later one of its name.
type Namespaces interface {
	// Known returns the UID of a cached namespace, otherwise "".
	Known(ctx context.Context, name string) types.UID
	// Current returns the same, and asks the API server for uncached namespaces; "" if there is none.
	Current(ctx context.Context, name string) (types.UID, error)
}

// ClusterNamespaces are the namespaces of the cluster: Cached follows them, and Direct asks the API server.
type ClusterNamespaces struct{ Cached, Direct client.Reader }

// NamespaceCache restricts a cache to the required fields of namespaces.
func NamespaceCache() cache.ByObject {
	return cache.ByObject{Transform: func(object any) (any, error) {
		namespace, ok := object.(*corev1.Namespace)
		if !ok {
			return object, nil
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion}}, nil
	}}
}

// Known implements Namespaces.
func (c ClusterNamespaces) Known(ctx context.Context, name string) types.UID {
	var found corev1.Namespace
	if c.Cached.Get(ctx, types.NamespacedName{Name: name}, &found) != nil {
		return ""
	}
	return found.UID
}

// Current implements Namespaces.
func (c ClusterNamespaces) Current(ctx context.Context, name string) (types.UID, error) {
	if uid := c.Known(ctx, name); uid != "" {
		return uid, nil
	}
	var found corev1.Namespace
	if err := c.Direct.Get(ctx, types.NamespacedName{Name: name}, &found); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the UID of namespace %s: %w", name, err)
	} else if apierrors.IsNotFound(err) {
		return "", nil
	}
	return found.UID, nil
}

// current reports whether an item belongs to the current namespace of that name. Plugins of earlier versions answer without a UID.
func (n *Nodes) current(ctx context.Context, q *Query, r session.Session) bool {
	if r.NamespaceUID == "" {
		return true
	}
	now := q.namespaceUID
	if q.Namespace == "" {
		now = n.namespaces.Known(ctx, r.Namespace)
	}
	return types.UID(r.NamespaceUID) == now
}
