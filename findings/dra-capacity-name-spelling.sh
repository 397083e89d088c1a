#!/usr/bin/env bash
# The allocator of Dynamic Resource Allocation, for a capacity and an attribute in the driver's own domain, each written with and without the
# domain.
#
# Seen with k8s.io/dynamic-resource-allocation v0.37.2 and a device with capacity "memory" and attribute "model", both without domain:
#   - a claim that requests capacity "gpu.example.test/memory" has no allocation and no error, so its pod stays Pending without a reason; the
#     same request for "memory" is allocated;
#   - a CEL selector reads the capacity and the attribute as "gpu.example.test", and matchAttribute "gpu.example.test/model" is satisfied.
# The spelling matters for capacity requests alone.
# Needs Go and a module proxy.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOWORK=off
go version
cat >go.mod <<'MODULE'
module example.test/spelling

go 1.26.0

require (
	k8s.io/api v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/dynamic-resource-allocation v0.37.2
)
MODULE
cat >main.go <<'PROGRAM'
package main

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	driver = "gpu.example.test"
	node   = "node"
)

type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }
func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// published is a node with one device.
func published() *resourceapi.ResourceSlice {
	name, model := node, "a"
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &name, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
		Devices: []resourceapi.Device{{
			Name:       "gpu-0",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
			Capacity:   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("8Gi")}},
		}},
	}}
}

// claim requests one device; change adds to the request and to the constraints.
func claim(change func(*resourceapi.ExactDeviceRequest, *resourceapi.DeviceClaim)) *resourceapi.ResourceClaim {
	exactly := &resourceapi.ExactDeviceRequest{DeviceClassName: "any", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
	of := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "1"}}
	of.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	change(exactly, &of.Spec.Devices)
	return of
}

// capacity requests 4Gi of a capacity.
func capacity(name resourceapi.QualifiedName) *resourceapi.ResourceClaim {
	return claim(func(r *resourceapi.ExactDeviceRequest, _ *resourceapi.DeviceClaim) {
		r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{name: resource.MustParse("4Gi")}}
	})
}

func selector(expression string) *resourceapi.ResourceClaim {
	return claim(func(r *resourceapi.ExactDeviceRequest, _ *resourceapi.DeviceClaim) {
		r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}}
	})
}

func constraint(name resourceapi.FullyQualifiedName) *resourceapi.ResourceClaim {
	return claim(func(_ *resourceapi.ExactDeviceRequest, c *resourceapi.DeviceClaim) {
		c.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: &name}}
	})
}

func main() {
	ctx := context.Background()
	features := structured.Features{ConsumableCapacity: true}
	for _, c := range []struct {
		name  string
		claim *resourceapi.ResourceClaim
	}{
		{"capacity memory", capacity("memory")},
		{"capacity gpu.example.test/memory", capacity(driver + "/memory")},
		{"selector on capacity of gpu.example.test", selector(`device.capacity["gpu.example.test"].memory.compareTo(quantity("4Gi")) >= 0`)},
		{"selector on attribute of gpu.example.test", selector(`device.attributes["gpu.example.test"].model == "a"`)},
		{"matchAttribute gpu.example.test/model", constraint(driver + "/model")},
	} {
		state := structured.AllocatedState{
			AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity: structured.NewConsumedCapacityCollection(),
		}
		cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
		a, err := structured.NewAllocator(ctx, features, state, classes{}, []*resourceapi.ResourceSlice{published()}, cache)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		found, err := a.Allocate(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, []*resourceapi.ResourceClaim{c.claim})
		fmt.Printf("%s: %d allocations, error: %v\n", c.name, len(found), err)
	}
}
PROGRAM
go run . >output
cat output
cat >expected <<'EXPECTED'
capacity memory: 1 allocations, error: <nil>
capacity gpu.example.test/memory: 0 allocations, error: <nil>
selector on capacity of gpu.example.test: 1 allocations, error: <nil>
selector on attribute of gpu.example.test: 1 allocations, error: <nil>
matchAttribute gpu.example.test/model: 1 allocations, error: <nil>
EXPECTED
cmp output expected || { echo "changed" && exit 1; }
echo "as stated"
