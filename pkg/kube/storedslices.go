package kube

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// Stored reads the stored ResourceSlices of one driver on one node.
type Stored struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// DriverName and NodeName select the ResourceSlices.
	DriverName, NodeName string
}

// Tainted lists the published devices with one uncached list, and whether each has a taint with that key in every ResourceSlice that
// contains it.
func (s Stored) Tainted(ctx context.Context, key string) (map[gpu.PoolDevice]bool, error) {
	list, err := s.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver: s.DriverName, resourceapi.ResourceSliceSelectorNodeName: s.NodeName,
	}.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the ResourceSlices of node %s: %w", s.NodeName, err)
	}
	published := map[gpu.PoolDevice]bool{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Driver != s.DriverName || spec.NodeName == nil || *spec.NodeName != s.NodeName {
			continue
		}
		for j := range spec.Devices {
			d := &spec.Devices[j]
			place := gpu.PoolDevice{Pool: spec.Pool.Name, Device: gpu.DeviceName(d.Name)}
			tainted := slices.ContainsFunc(d.Taints, func(t resourceapi.DeviceTaint) bool { return t.Key == key })
			before, again := published[place]
			published[place] = tainted && (before || !again)
		}
	}
	return published, nil
}
