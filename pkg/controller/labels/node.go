package labels

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// newNode is the metadata of a Node, to be read.
func newNode() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// fieldSet is the part of a set of managed fields that names labels.
type fieldSet struct {
	Metadata struct {
		Labels map[string]json.RawMessage `json:"f:labels"`
	} `json:"f:metadata"`
}

// managed returns which of the labels a managed-fields entry has.
func managed(entry *metav1.ManagedFieldsEntry) (map[string]bool, error) {
	has := map[string]bool{}
	if entry.FieldsV1 == nil {
		return has, nil
	}
	set := fieldSet{}
	if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set); err != nil {
		return nil, fmt.Errorf("reading the fields of manager %q: %w", entry.Manager, err)
	}
	for _, key := range keys {
		if _, found := set.Metadata.Labels["f:"+key]; found {
			has[key] = true
		}
	}
	return has, nil
}

// owners returns which of the labels the manager owns through server-side apply, and which others own.
func owners(node *metav1.PartialObjectMetadata, manager string) (own, others map[string]bool, err error) {
	own, others = map[string]bool{}, map[string]bool{}
	for i := range node.ManagedFields {
		entry := &node.ManagedFields[i]
		has, err := managed(entry)
		if err != nil {
			return nil, nil, fmt.Errorf("node %s: %w", node.Name, err)
		}
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			maps.Copy(own, has)
		} else {
			maps.Copy(others, has)
		}
	}
	return own, others, nil
}

// NodeCache reduces cached Nodes, of which only metadata are cached, to these labels and their managers.
func NodeCache() cache.ByObject { return cache.ByObject{Transform: reduceNode} }

func reduceNode(object any) (any, error) {
	node, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	small := &metav1.PartialObjectMetadata{TypeMeta: node.TypeMeta}
	small.Name, small.UID, small.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	for _, key := range keys {
		if value, found := node.Labels[key]; found {
			if small.Labels == nil {
				small.Labels = map[string]string{}
			}
			small.Labels[key] = value
		}
	}
	for i := range node.ManagedFields {
		entry := &node.ManagedFields[i]
		has, err := managed(entry)
		if err != nil {
			return nil, fmt.Errorf("reducing node %s: %w", node.Name, err)
		}
		if len(has) == 0 {
			continue
		}
		set := fieldSet{}
		set.Metadata.Labels = map[string]json.RawMessage{}
		for _, key := range slices.Sorted(maps.Keys(has)) {
			set.Metadata.Labels["f:"+key] = json.RawMessage("{}")
		}
		raw, err := json.Marshal(set)
		if err != nil {
			return nil, fmt.Errorf("reducing node %s: %w", node.Name, err)
		}
		small.ManagedFields = append(small.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: entry.Manager, Operation: entry.Operation, Subresource: entry.Subresource, FieldsV1: metav1.NewFieldsV1(string(raw)),
		})
	}
	return small, nil
}
