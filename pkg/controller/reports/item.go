package reports

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// item is what nodes store and the API lists: a report or a session.
type item interface {
	// kind is the same for all items of a type.
	kind() *kind
	// process returns the names of the item and of its process, by which it is found and selected.
	process() session.Session
	// cost returns the approximate memory.
	cost() int
	// object returns the form of the item in the API.
	object() metav1.ObjectMetaAccessor
	// cells are the values of the columns of kubectl get.
	cells() []any
}

// kind describes a type of items.
type kind struct {
	// resource is the name of the resource in the API, and in the API of nodes; kind is the name of its objects.
	resource, kind string
	// optional: plugins of earlier versions do not know the resource, so they have no items.
	optional bool
	// verb is what nodes do with items, in warnings.
	verb    string
	columns []metav1.TableColumnDefinition
}

// kindOf returns the kind of a type of items.
func kindOf[T item]() *kind {
	var none T
	return none.kind()
}

// key returns the key for the order of a node's items; "" if no node can have the item.
func key(of session.Session) string {
	if !validID(of.ID) || !validID(of.ClaimUID) {
		return ""
	}
	return of.Key()
}

// token returns the name of the resource in tokens.
func (k *kind) token() string {
	if k == reportKind {
		return ""
	}
	return k.resource
}
