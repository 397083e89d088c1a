#!/usr/bin/env bash
# The allocator of Dynamic Resource Allocation, for a claim with allocationMode All and a matchAttribute constraint, and a node whose devices
# differ in the attribute.
#
# Seen with k8s.io/dynamic-resource-allocation v0.37.2, two nodes with two devices each, on "mixed" with different values and on "uniform" with
# equal ones:
#   - ExactCount with count 2: "mixed" has no allocation and no error, so a scheduler tries the next node;
#   - All: "mixed" is an error ("cannot add device ... because a claim constraint would not be satisfied"), which a scheduler cannot tell from a
#     failure of the search on all nodes.
# Needs Go and a module proxy.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod GOWORK=off
go version
cat >go.mod <<'MODULE'
module example.test/all

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const driver = "gpu.example.test"

type classes struct{}

func (classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }
func (classes) Get(name string) (*resourceapi.DeviceClass, error) {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// pool is a node with a device for each of these NUMA nodes.
func pool(node string, numa ...int64) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	for i, n := range numa {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"numa": {IntValue: &n}},
		})
	}
	return s
}

func claim(mode resourceapi.DeviceAllocationMode, count int64) *resourceapi.ResourceClaim {
	same := resourceapi.FullyQualifiedName(driver + "/numa")
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "1"}, Spec: resourceapi.ResourceClaimSpec{
		Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpus", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: "any", AllocationMode: mode, Count: count,
			}}},
			Constraints: []resourceapi.DeviceConstraint{{Requests: []string{"gpus"}, MatchAttribute: &same}},
		},
	}}
}

func main() {
	ctx := context.Background()
	slices := []*resourceapi.ResourceSlice{pool("mixed", 0, 1), pool("uniform", 0, 0)}
	for _, c := range []*resourceapi.ResourceClaim{claim(resourceapi.DeviceAllocationModeAll, 0), claim(resourceapi.DeviceAllocationModeExactCount, 2)} {
		for _, name := range []string{"mixed", "uniform"} {
			state := structured.AllocatedState{
				AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
				AggregatedCapacity: structured.NewConsumedCapacityCollection(),
			}
			a, err := structured.NewAllocator(ctx, structured.Features{}, state, classes{}, slices, cel.NewCache(10, cel.Features{}))
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			found, err := a.Allocate(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, []*resourceapi.ResourceClaim{c})
			fmt.Printf("%s on node %s: %d allocations, error: %v\n", c.Spec.Devices.Requests[0].Exactly.AllocationMode, name, len(found), err)
		}
	}
}
PROGRAM
go run . >output
cat output
cat >expected <<'EXPECTED'
All on node mixed: 0 allocations, error: claim default/claim, request gpus: cannot add device gpu.example.test/mixed/gpu-1 because a claim constraint would not be satisfied
All on node uniform: 1 allocations, error: <nil>
ExactCount on node mixed: 0 allocations, error: <nil>
ExactCount on node uniform: 1 allocations, error: <nil>
EXPECTED
cmp output expected || { echo "changed" && exit 1; }
echo "as stated"
