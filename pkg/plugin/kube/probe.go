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

// probeName is the name of the pool, counters, devices and taints in a probe.
const probeName = "probe"

// Probe determines which fields of a ResourceSlice the API server stores. A server with a disabled feature gate drops the fields
// silently. Probes are dry runs: nothing is stored, and no scheduler sees them.
type Probe struct {
	// Client is a client of the API server.
	Client kubernetes.Interface
	// DriverName and NodeName are the names in the real ResourceSlices, because admission policies check them.
	DriverName, NodeName string
	// NodeUID is the UID of the Node object; empty: it is read.
	NodeUID types.UID
	// SchedulerVersion is the version of the cluster's oldest scheduler; empty: the version of the API server.
	SchedulerVersion string
}

// PartitionableDevices reports whether the server stores shared counters and their consumption. It is false also for a server before 1.35,
// which refuses this form of them, and if a scheduler is known to be older than the versions that count them by default. After an error the
// result is unknown, and the call can be retried.
func (p Probe) PartitionableDevices(ctx context.Context) (bool, error) {
	if p.SchedulerVersion != "" && !atLeast(p.SchedulerVersion, countersCounted) {
		return false, nil
	}
	uid, err := p.nodeUID(ctx)
	if err != nil {
		return false, fmt.Errorf("probing whether the API server stores shared counters: %w", err)
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
			return false, fmt.Errorf("probing whether the API server stores shared counters: %w", err)
		}
		if !hasCounters(stored) {
			return false, nil
		}
	}
	return true, nil
}

// DeviceTaints reports whether the server stores device taints. After an error the result is unknown, and the call can be retried.
func (p Probe) DeviceTaints(ctx context.Context) (bool, error) {
	stored, err := p.taint(ctx)
	if err != nil {
		return false, fmt.Errorf("probing whether the API server stores device taints: %w", err)
	}
	return len(stored.Devices) > 0 && len(stored.Devices[0].Taints) > 0, nil
}

// taint returns a ResourceSlice with a tainted device as the server would store it.
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

// hasCounters reports whether a ResourceSlice contains a counter set, or a device that consumes counters.
func hasCounters(spec *resourceapi.ResourceSliceSpec) bool {
	return len(spec.SharedCounters) > 0 || len(spec.Devices) > 0 && len(spec.Devices[0].ConsumesCounters) > 0
}

// refusesCounters reports whether validation refused counters. Admission policies also return "Invalid", but without a field.
func refusesCounters(err error) bool {
	var response apierrors.APIStatus
	if !errors.As(err, &response) || !apierrors.IsInvalid(err) || response.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(response.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.Contains(c.Field, "Counters")
	})
}

// nodeUID returns the UID of the Node object, the owner of the ResourceSlices.
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

// create returns a ResourceSlice, in a pool with two of them, as the server would store it.
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
