package clusterview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store holds reduced objects, for a picture at any time. It keeps no object that it is passed, and is not safe for concurrent use.
type Store struct {
	scope     Scope
	pieces    map[string]*piece
	shapes    shapes
	sharing   sharing
	checked   map[string]bool // keys of the valid pools of the last picture
	claims    map[types.NamespacedName]*resourceapi.ResourceClaim
	classes   map[string]*resourceapi.DeviceClass
	rules     map[string]*resourceapi.DeviceTaintRule
	nodes     map[string]*corev1.Node
	pods      map[types.NamespacedName]*corev1.Pod
	templates map[types.NamespacedName]*resourceapi.ResourceClaimTemplate
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{
		pieces:    map[string]*piece{},
		shapes:    shapes{byKey: map[string]*shape{}},
		checked:   map[string]bool{},
		claims:    map[types.NamespacedName]*resourceapi.ResourceClaim{},
		classes:   map[string]*resourceapi.DeviceClass{},
		rules:     map[string]*resourceapi.DeviceTaintRule{},
		nodes:     map[string]*corev1.Node{},
		pods:      map[types.NamespacedName]*corev1.Pod{},
		templates: map[types.NamespacedName]*resourceapi.ResourceClaimTemplate{},
	}
}

// SetScope sets the part of the cluster that is read.
func (s *Store) SetScope(scope Scope) { s.scope = scope }

// PutSlice adds or replaces a ResourceSlice.
func (s *Store) PutSlice(slice *resourceapi.ResourceSlice) {
	// Of an object in memory, encoding and decoding cannot fail.
	if spec, err := slice.Spec.Marshal(); err == nil {
		_ = s.putSlice(slice.Name, spec)
	}
}

// PutSliceData adds or replaces a ResourceSlice of resource.k8s.io/v1 in protobuf, without the envelope of the API server, and returns its
// name. It decodes only content that no ResourceSlice had before.
func (s *Store) PutSliceData(data []byte) (name string, err error) {
	metadata, err := find(data, sliceMetadata)
	if err != nil {
		return "", fmt.Errorf("reading a ResourceSlice: %w", err)
	}
	text, err := find(metadata, metadataName)
	if err != nil {
		return "", fmt.Errorf("reading a ResourceSlice: %w", err)
	}
	spec, err := find(data, sliceSpec)
	if err != nil {
		return "", fmt.Errorf("reading a ResourceSlice: %w", err)
	}
	return string(text), s.putSlice(string(text), spec)
}

func (s *Store) putSlice(name string, spec []byte) error {
	added, err := s.shapes.add(name, spec)
	if err != nil {
		return err
	}
	s.shapes.release(s.pieces[name])
	s.pieces[name] = added
	return nil
}

// DeleteSlice removes a ResourceSlice.
func (s *Store) DeleteSlice(name string) {
	s.shapes.release(s.pieces[name])
	delete(s.pieces, name)
}

// PutClaim adds or replaces a ResourceClaim.
func (s *Store) PutClaim(claim *resourceapi.ResourceClaim) {
	s.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = s.sharing.claim(claim)
}

// DeleteClaim removes a ResourceClaim.
func (s *Store) DeleteClaim(namespace, name string) {
	delete(s.claims, types.NamespacedName{Namespace: namespace, Name: name})
}

// PutClass adds or replaces a DeviceClass.
func (s *Store) PutClass(class *resourceapi.DeviceClass) {
	kept := class.DeepCopy()
	kept.ManagedFields = nil
	s.classes[class.Name] = kept
}

// DeleteClass removes a DeviceClass.
func (s *Store) DeleteClass(name string) { delete(s.classes, name) }

// PutRule adds or replaces a DeviceTaintRule.
func (s *Store) PutRule(rule *resourceapi.DeviceTaintRule) {
	kept := &resourceapi.DeviceTaintRule{Spec: *rule.Spec.DeepCopy()}
	kept.Name = rule.Name
	s.rules[rule.Name] = kept
}

// DeleteRule removes a DeviceTaintRule.
func (s *Store) DeleteRule(name string) { delete(s.rules, name) }

// PutNode adds or replaces a Node.
func (s *Store) PutNode(node *corev1.Node) { s.nodes[node.Name] = s.sharing.node(node) }

// DeleteNode removes a Node.
func (s *Store) DeleteNode(name string) { delete(s.nodes, name) }

// PutPod adds or replaces a Pod.
func (s *Store) PutPod(pod *corev1.Pod) {
	s.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = s.sharing.pod(pod)
}

// DeletePod removes a Pod.
func (s *Store) DeletePod(namespace, name string) {
	delete(s.pods, types.NamespacedName{Namespace: namespace, Name: name})
}

// PutTemplate adds or replaces a ResourceClaimTemplate; nil says that it does not exist.
func (s *Store) PutTemplate(name types.NamespacedName, template *resourceapi.ResourceClaimTemplate) {
	if template != nil {
		template = template.DeepCopy()
		template.ManagedFields = nil
	}
	s.templates[name] = template
}

// Cluster returns the picture of the objects in the Store. Later changes of the Store do not change it.
func (s *Store) Cluster() *Cluster {
	c := &Cluster{Classes: maps.Clone(s.classes), Templates: maps.Clone(s.templates), Scope: s.scope}
	s.addClaims(c)
	s.addPools(c)
	return c
}

// compareNames orders objects by namespace and name.
func compareNames(namespaceA, nameA, namespaceB, nameB string) int {
	return cmp.Or(cmp.Compare(namespaceA, namespaceB), cmp.Compare(nameA, nameB))
}

// FindNode returns a node by its name; nil if there is none.
func (c *Cluster) FindNode(name string) *Node {
	i, found := slices.BinarySearchFunc(c.Nodes, name, func(n *Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return c.Nodes[i]
}

// FindClaim returns a claim; nil if there is none.
func (c *Cluster) FindClaim(namespace, name string) *Claim {
	i, found := slices.BinarySearchFunc(c.Claims, name, func(claim *Claim, name string) int {
		return compareNames(claim.Namespace, claim.Name, namespace, name)
	})
	if !found {
		return nil
	}
	return c.Claims[i]
}

// FindPod returns a pod; nil if there is none.
func (c *Cluster) FindPod(namespace, name string) *Pod {
	i, found := slices.BinarySearchFunc(c.Pods, name, func(pod *Pod, name string) int {
		return compareNames(pod.Namespace, pod.Name, namespace, name)
	})
	if !found {
		return nil
	}
	return c.Pods[i]
}
