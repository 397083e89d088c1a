package clusterview

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxShared limits the contents that a reducer of objects remembers. After that many it begins again.
const maxShared = 4096

// maxAnnotation is the length of the longest annotation that is kept of a claim or a pod, in bytes: the annotations that users of a picture read
// are shorter, and an object may have 256 KiB of others.
const maxAnnotation = 256

// sharing keeps contents that many objects have once: pods of one controller differ in little but their names.
type sharing struct {
	labels     map[string]map[string]string
	owners     map[string][]metav1.OwnerReference
	containers map[string][]corev1.Container
	specs      map[string]resourceapi.DeviceClaim
	consumed   map[string]map[resourceapi.QualifiedName]resource.Quantity
}

// message is a part of an object.
type message interface{ Marshal() ([]byte, error) }

// shared returns the content with the same encoding as these parts, or the result of copied.
func shared[T any](known *map[string]T, copied func() T, parts ...message) T {
	var key []byte
	for _, part := range parts {
		encoded, err := part.Marshal()
		if err != nil {
			return copied()
		}
		key = append(append(key, encoded...), 0) // begins no field
	}
	if found, ok := (*known)[string(key)]; ok {
		return found
	}
	if *known == nil || len(*known) >= maxShared {
		*known = map[string]T{}
	}
	made := copied()
	(*known)[string(key)] = made
	return made
}

// meta keeps the metadata that users see or that decide about placement.
func (s *sharing) meta(of *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Name: of.Name, Namespace: of.Namespace, UID: of.UID, Annotations: maps.Clone(of.Annotations),
		CreationTimestamp: of.CreationTimestamp, DeletionTimestamp: of.DeletionTimestamp.DeepCopy(),
	}
	delete(kept.Annotations, corev1.LastAppliedConfigAnnotation)
	if of.Namespace != "" {
		maps.DeleteFunc(kept.Annotations, func(_, value string) bool { return len(value) > maxAnnotation })
	}
	if len(of.Labels) > 0 {
		kept.Labels = shared(&s.labels, func() map[string]string { return maps.Clone(of.Labels) }, &metav1.ObjectMeta{Labels: of.Labels})
	}
	if len(of.OwnerReferences) > 0 {
		kept.OwnerReferences = shared(&s.owners, func() []metav1.OwnerReference {
			return (&metav1.ObjectMeta{OwnerReferences: of.OwnerReferences}).DeepCopy().OwnerReferences
		}, &metav1.ObjectMeta{OwnerReferences: of.OwnerReferences})
	}
	return kept
}

// claim drops managed fields and the data of devices.
func (s *sharing) claim(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	devices := &claim.Spec.Devices
	kept := &resourceapi.ResourceClaim{
		ObjectMeta: s.meta(&claim.ObjectMeta), Status: *claim.Status.DeepCopy(),
		Spec: resourceapi.ResourceClaimSpec{Devices: shared(&s.specs, func() resourceapi.DeviceClaim { return *devices.DeepCopy() }, devices)},
	}
	for i := range kept.Status.Devices {
		kept.Status.Devices[i].Data = nil
	}
	if kept.Status.Allocation != nil {
		for i := range kept.Status.Allocation.Devices.Results {
			if r := &kept.Status.Allocation.Devices.Results[i]; len(r.ConsumedCapacity) > 0 {
				r.ConsumedCapacity = shared(&s.consumed, func() map[resourceapi.QualifiedName]resource.Quantity { return r.ConsumedCapacity },
					&resourceapi.DeviceRequestAllocationResult{ConsumedCapacity: r.ConsumedCapacity})
			}
		}
	}
	return kept
}

// node drops the images, conditions and addresses of a node.
func (s *sharing) node(node *corev1.Node) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: s.meta(&node.ObjectMeta), Spec: *node.Spec.DeepCopy(), Status: corev1.NodeStatus{Allocatable: node.Status.Allocatable.DeepCopy()},
	}
}

// pod keeps the fields that decide about the placement of a pod, and its state.
func (s *sharing) pod(pod *corev1.Pod) *corev1.Pod {
	in, status := &pod.Spec, &pod.Status
	kept := (&corev1.Pod{Spec: corev1.PodSpec{
		NodeName: in.NodeName, NodeSelector: in.NodeSelector, Affinity: in.Affinity, Tolerations: in.Tolerations,
		TopologySpreadConstraints: in.TopologySpreadConstraints, SchedulingGates: in.SchedulingGates, SchedulerName: in.SchedulerName,
		Priority: in.Priority, PriorityClassName: in.PriorityClassName, PreemptionPolicy: in.PreemptionPolicy, RestartPolicy: in.RestartPolicy,
		ResourceClaims: in.ResourceClaims, SchedulingGroup: in.SchedulingGroup, Overhead: in.Overhead, Resources: in.Resources,
		HostNetwork: in.HostNetwork,
	}, Status: corev1.PodStatus{
		Phase: status.Phase, Conditions: status.Conditions, Reason: status.Reason, Message: status.Message, StartTime: status.StartTime,
		NominatedNodeName: status.NominatedNodeName, ResourceClaimStatuses: status.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: status.ExtendedResourceClaimStatus, QOSClass: status.QOSClass,
	}}).DeepCopy()
	kept.ObjectMeta = s.meta(&pod.ObjectMeta)
	kept.Spec.Containers, kept.Spec.InitContainers = s.reduced(in.Containers), s.reduced(in.InitContainers)
	return kept
}

// reduced keeps the names, resources and restart policies of containers.
func (s *sharing) reduced(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	kept := make([]corev1.Container, len(containers))
	parts := make([]message, len(containers))
	for i := range containers {
		c := &containers[i]
		kept[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		parts[i] = &kept[i]
	}
	return shared(&s.containers, func() []corev1.Container {
		copied := slices.Clone(kept)
		for i := range copied {
			copied[i] = *kept[i].DeepCopy()
		}
		return copied
	}, parts...)
}
