package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// probeName is the name of everything in a probe, below those of the driver and the node.
const probeName = "probe"

// Probe asks what the API server would store of a ResourceSlice. A server whose features are off leaves their fields out and
// says so nowhere else. Everything is asked as a dry run: nothing is stored, and no scheduler sees it.
type Probe struct {
	// Client talks to the API server.
	Client kubernetes.Interface
	// DriverName and NodeName are those of the slices to come: policies look at them.
	DriverName, NodeName string
	// NodeUID is the UID of the Node object; empty: it is read.
	NodeUID types.UID
}

// PartitionableDevices tells whether the server keeps counters and what devices consume of them. A server that does not take
// them in this form at all, as those before 1.35, does not keep them either. With an error nothing is known; asking again later
// is right.
func (p Probe) PartitionableDevices(ctx context.Context) (bool, error) {
	uid, err := p.nodeUID(ctx)
	if err != nil {
		return false, fmt.Errorf("asking whether the API server keeps counters of ResourceSlices: %w", err)
	}
	one := map[string]resourceapi.Counter{probeName: {Value: *resource.NewQuantity(1, resource.DecimalSI)}}
	for _, spec := range []resourceapi.ResourceSliceSpec{
		{SharedCounters: []resourceapi.CounterSet{{Name: probeName, Counters: one}}},
		{Devices: []resourceapi.Device{{
			Name:             probeName,
			ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: probeName, Counters: one}},
		}}},
	} {
		stored, err := p.create(ctx, uid, spec)
		if refusesCounters(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking whether the API server keeps counters of ResourceSlices: %w", err)
		}
		if !hasCounters(stored) {
			return false, nil
		}
	}
	return true, nil
}

// DeviceTaints tells whether the server keeps the taints of devices. With an error nothing is known; asking again later is right.
func (p Probe) DeviceTaints(ctx context.Context) (bool, error) {
	stored, err := p.taint(ctx)
	if err != nil {
		return false, fmt.Errorf("asking whether the API server keeps device taints of ResourceSlices: %w", err)
	}
	return len(stored.Devices) > 0 && len(stored.Devices[0].Taints) > 0, nil
}

// taint returns what would be stored of a slice with a tainted device.
func (p Probe) taint(ctx context.Context) (*resourceapi.ResourceSliceSpec, error) {
	uid, err := p.nodeUID(ctx)
	if err != nil {
		return nil, err
	}
	return p.create(ctx, uid, resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
		Name:   probeName,
		Taints: []resourceapi.DeviceTaint{{Key: p.DriverName + "/" + probeName, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}}})
}

// hasCounters tells whether a slice has a counter set, or a device that consumes counters.
func hasCounters(spec *resourceapi.ResourceSliceSpec) bool {
	return len(spec.SharedCounters) > 0 || len(spec.Devices) > 0 && len(spec.Devices[0].ConsumesCounters) > 0
}

// refusesCounters tells whether validation finds fault with counters. Policies also answer "invalid", but name no field.
func refusesCounters(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || !apierrors.IsInvalid(err) || answer.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.Contains(c.Field, "Counters")
	})
}

// nodeUID returns the UID of the Node object, which owns the slices.
func (p Probe) nodeUID(ctx context.Context) (types.UID, error) {
	if p.NodeUID != "" {
		return p.NodeUID, nil
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, p.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading node %s: %w", p.NodeName, err)
	}
	return node.UID, nil
}

// create returns what would be stored of a slice of a pool with two slices.
func (p Probe) create(ctx context.Context, uid types.UID, spec resourceapi.ResourceSliceSpec) (*resourceapi.ResourceSliceSpec, error) {
	spec.Driver, spec.NodeName = p.DriverName, &p.NodeName
	spec.Pool = resourceapi.ResourcePool{Name: p.NodeName + "/" + probeName, Generation: 1, ResourceSliceCount: 2}
	controller := true
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    probeName + "-" + p.DriverName + "-" + p.NodeName + "-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.NodeName, UID: uid, Controller: &controller}},
		},
		Spec: spec,
	}
	stored, err := p.Client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, fmt.Errorf("creating a ResourceSlice as a dry run: %w", err)
	}
	return &stored.Spec, nil
}
