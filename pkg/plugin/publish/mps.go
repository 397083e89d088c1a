package publish

import (
	"maps"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// CapActiveThreadPercentage is the portion of the SMs that the processes of an MPS share may use, in percent; 0 is no limit. Only MPS
// shares have it. The sum of all shares may be more than 100: then shares compete for SMs.
const CapActiveThreadPercentage = "activeThreadPercentage"

// mpsShare publishes GPUs that several claims share with MPS.
type mpsShare struct{}

// Type is gpu.TypeMPS.
func (mpsShare) Type() gpu.DeviceType { return gpu.TypeMPS }

// Attributes are the common ones, with how memory is limited.
func (mpsShare) Attributes(_ gpu.Device, common Attributes, _ string) Attributes {
	common[AttrMemoryEnforcement] = text(enforcementCooperative)
	return common
}

// Capacities are memory, shares and the active thread percentage. A claim takes one share. Of the other capacities it takes the requested
// amount, or the default in the node's configuration if the request gives none.
func (mpsShare) Capacities(d gpu.Device, _ *gpu.Node, _ string) Capacities {
	share, ok := d.(gpu.MPSShare)
	if !ok {
		return WithMemory(d)
	}
	memory, threads := share.Size.Memory, share.Size.Threads
	return Capacities{
		CapMemory: limited(resource.BinarySI, policy{total: memory.Total, def: memory.Default, min: memory.Min, max: memory.Max, step: memory.Step}),
		CapShares: limited(resource.DecimalSI, policy{total: int64(share.Size.Replicas), def: 1, min: 1, max: 1}),
		CapActiveThreadPercentage: limited(resource.DecimalSI, policy{
			total: int64(threads.Total), def: int64(threads.Default), max: min(int64(threads.Total), 100), step: 1,
		}),
	}
}

// policy sets the total amount of a capacity, and the amount that a claim may have.
type policy struct{ total, def, min, max, step int64 }

// limited is a capacity with a request policy. The API server refuses a step beyond the capacity, and one beyond the most is of no use.
func limited(format resource.Format, p policy) resourceapi.DeviceCapacity {
	n := func(value int64) *resource.Quantity { return resource.NewQuantity(value, format) }
	allowed := &resourceapi.CapacityRequestPolicyRange{Min: n(p.min), Max: n(p.max)}
	if p.step > 0 && p.min+p.step <= p.max {
		allowed.Step = n(p.step)
	}
	return resourceapi.DeviceCapacity{Value: *n(p.total), RequestPolicy: &resourceapi.CapacityRequestPolicy{Default: n(p.def), ValidRange: allowed}}
}

// Counters are all, which the claims of one GPU take together.
func (mpsShare) Counters(_ gpu.Device, all Counters) Counters { return maps.Clone(all) }

// Compare finds no order: there is one per GPU.
func (mpsShare) Compare(_, _ gpu.Device) int { return 0 }
