package kube

import (
	"context"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Remove deletes them. Missing ones are not an error.
func (s Stored) Remove(ctx context.Context) error {
	api := s.Client.ResourceV1().ResourceSlices()
	list, err := api.List(ctx, s.selected())
	if err != nil {
		return fmt.Errorf("listing the ResourceSlices of driver %s on node %s: %w", s.DriverName, s.NodeName, err)
	}
	for i := range list.Items {
		slice := &list.Items[i]
		if !s.has(&slice.Spec) {
			continue
		}
		if err := api.Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting ResourceSlice %s of driver %s: %w", slice.Name, s.DriverName, err)
		}
	}
	return nil
}

func (s Stored) selected() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver: s.DriverName, resourceapi.ResourceSliceSelectorNodeName: s.NodeName,
	}.String()}
}

// has reports whether a ResourceSlice matches, for servers that ignore the selector.
func (s Stored) has(spec *resourceapi.ResourceSliceSpec) bool {
	return spec.Driver == s.DriverName && spec.NodeName != nil && *spec.NodeName == s.NodeName
}

// Tainted lists the published devices with one uncached list, and whether each is tainted with that key in every ResourceSlice that
// contains it.
func (s Stored) Tainted(ctx context.Context, key string) (map[gpu.PoolDevice]bool, error) {
	list, err := s.Client.ResourceV1().ResourceSlices().List(ctx, s.selected())
	if err != nil {
		return nil, fmt.Errorf("listing the ResourceSlices of node %s: %w", s.NodeName, err)
	}
	published := map[gpu.PoolDevice]bool{}
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if !s.has(spec) {
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
