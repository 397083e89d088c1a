package kube

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// messageLimit bounds the message of a condition in the cache, in bytes, as the API bounds messages of newer kinds.
const messageLimit = 32 << 10

// NodeWatch watches one Node. Its cache keeps only the parts that are named here: a Node changes often for other reasons.
type NodeWatch struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// NodeName is the Node.
	NodeName string
	// Label is the key of a label; empty for none.
	Label string
	// Domains are the domains of annotations, and Conditions the types of conditions.
	Domains, Conditions []string
}

// NodeParts are the watched parts of a Node, empty if it does not exist. They must not be changed.
type NodeParts struct {
	// Label is the value of the label.
	Label string
	// Annotations are the annotations of the domains.
	Annotations map[string]string
	// Conditions are the conditions of the types.
	Conditions []NodeCondition
}

// NodeCondition is a condition of a Node without its times.
type NodeCondition struct{ Type, Status, Reason, Message string }

// Equal reports whether two Nodes have the same parts.
func (p *NodeParts) Equal(other *NodeParts) bool {
	return p.Label == other.Label && maps.Equal(p.Annotations, other.Annotations) && slices.Equal(p.Conditions, other.Conditions)
}

// Run calls changed when the Node is first read and at every change of the parts, until the context is done. Broken connections are
// re-established. changed must not block.
func (w NodeWatch) Run(ctx context.Context, changed func(now NodeParts)) error {
	nodes := w.Client.CoreV1().Nodes()
	follow(ctx, w.NodeName, source[*corev1.Node]{
		client: w.Client,
		list:   func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
		watch:  nodes.Watch,
		shrink: func(full *corev1.Node) (metav1.Object, error) { return &shrunkNode{identity(full), w.parts(full)}, nil },
	}, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { changed(partsOf(now)) },
		DeleteFunc: func(any) { changed(NodeParts{}) },
		UpdateFunc: func(before, now any) {
			earlier, parts := partsOf(before), partsOf(now)
			if !earlier.Equal(&parts) {
				changed(parts)
			}
		},
	})
	return nil
}

// shrunkNode is a Node in the cache.
type shrunkNode struct {
	metav1.ObjectMeta

	parts NodeParts
}

func partsOf(object any) NodeParts {
	if node, ok := object.(*shrunkNode); ok {
		return node.parts
	}
	return NodeParts{}
}

// parts returns the parts of a Node that are watched.
func (w NodeWatch) parts(full *corev1.Node) NodeParts {
	parts := NodeParts{Label: full.Labels[w.Label]}
	for key, value := range full.Annotations {
		domain, _, has := strings.Cut(key, "/")
		if !has || !slices.Contains(w.Domains, domain) {
			continue
		}
		if parts.Annotations == nil {
			parts.Annotations = map[string]string{}
		}
		parts.Annotations[key] = value
	}
	for i := range full.Status.Conditions {
		c := &full.Status.Conditions[i]
		if slices.Contains(w.Conditions, string(c.Type)) {
			parts.Conditions = append(parts.Conditions, NodeCondition{
				Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: strings.Clone(shorten(c.Message, messageLimit)),
			})
		}
	}
	return parts
}
