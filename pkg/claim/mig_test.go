package claim

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	poolA = nodeName + "/gpu-aaaaaaaa"
	migA  = "gpu-aaaaaaaa-mig-"
)

// partitionable is a node whose GPU A can be partitioned, and is advertised whole and as MIG devices; B only whole.
func partitionable() (*gpu.Node, gpu.Layout) {
	n := node()
	a := &n.GPUs[0]
	a.PCI.BusID, a.Product = "0000:3b:00.0", gpu.Product{Name: "NVIDIA H100", MIGCapable: true}
	n.GPUs[1].Product.Name = "NVIDIA L40S"
	a.MIG = &gpu.MIG{Profiles: []gpu.MIGProfile{
		{ID: 19, Name: "1g.10gb", Slices: 1, Placements: []gpu.Placement{{Start: 0, Size: 1}, {Start: 6, Size: 1}}},
		{ID: 9, Name: "3g.40gb", Slices: 3, Placements: []gpu.Placement{{Start: 0, Size: 4}, {Start: 4, Size: 4}}},
		{ID: 20, Name: "1g.10gb+me", Slices: 1, Placements: []gpu.Placement{{Start: 0, Size: 1}, {Start: 6, Size: 1}}},
	}}
	return n, gpu.Layout{uuidA: {Whole: true, MIG: []string{"1g.10gb", "3g.40gb", "1g.10gb+me"}}}
}

func advertising(n *gpu.Node, layout gpu.Layout) Source {
	return Source{Driver: driverName, NodeName: nodeName, Additional: gpu.Additional{Monitor: true, Perfmon: true}, Advertised: func() (*gpu.Node, gpu.Layout, error) { return n, layout, nil }}
}

// inA is an allocation result from the pool of GPU A.
func inA(request, device string, change ...func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	return result(request, device, append(change, withPool(poolA))...)
}

// static pre-creates a 1g.10gb at the sixth memory slice.
func static(g *gpu.GPU) gpu.MIGIdentity {
	g.MIG.Mode = gpu.MIGMode{Enabled: true, Pending: true}
	g.MIG.Instances = []gpu.Instance{{
		ID: 7, Profile: 19, Placement: gpu.Placement{Start: 6, Size: 1}, Compute: []gpu.ComputeInstance{{ID: 0, Slices: 1, UUID: "MIG-1"}},
	}}
	return gpu.MIGIdentity{GPUInstance: 7, UUID: "MIG-1"}
}

func TestResolve_MIGDevices_PreconditionsAndSteps(t *testing.T) {
	t.Parallel()
	onA := func(kind string) []Precondition { return []Precondition{{Kind: kind, Target: uuidA}} }
	high := Step{
		Kind: StepMIG, Target: uuidA, Device: migA + "9-4",
		Args: json.RawMessage(`{"pciBusID":"0000:3b:00.0","profile":9,"name":"3g.40gb","placement":{"start":4,"size":4}}`),
	}
	low := Step{
		Kind: StepMIG, Target: uuidA, Device: migA + "19-0",
		Args: json.RawMessage(`{"pciBusID":"0000:3b:00.0","profile":19,"name":"1g.10gb","placement":{"start":0,"size":1}}`),
	}
	for name, c := range map[string]struct {
		change        func(*gpu.Node, gpu.Layout)
		rc            []resourceapi.DeviceRequestAllocationResult
		preconditions []Precondition
		steps         []Step
	}{
		"a MIG device": {rc: results(inA("r", migA+"9-4")), preconditions: onA(PreconditionMIGMode), steps: []Step{high}},
		"MIG devices of one GPU need its mode once": {
			rc: results(inA("r", migA+"9-4"), inA("s", migA+"19-0")), preconditions: onA(PreconditionMIGMode), steps: []Step{high, low},
		},
		"a whole GPU that is partitioned too":       {rc: results(inA("r", "gpu-aaaaaaaa")), preconditions: onA(PreconditionNoMIGMode)},
		"a whole GPU that is advertised whole only": {rc: results(result("r", "gpu-bbbbbbbb"))},
		"a whole GPU that can be partitioned and is not": {
			change: func(_ *gpu.Node, l gpu.Layout) { delete(l, uuidA) }, rc: results(result("r", "gpu-aaaaaaaa")),
		},
		"a whole GPU that was seen in MIG mode": {
			change: func(n *gpu.Node, l gpu.Layout) { delete(l, uuidA); n.GPUs[0].MIG.Mode.Enabled = true },
			rc:     results(result("r", "gpu-aaaaaaaa")), preconditions: onA(PreconditionNoMIGMode),
		},
		"a pre-created MIG device is there already": {
			change: func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) }, rc: results(inA("r", migA+"19-6")),
		},
		"monitoring needs nothing": {rc: results(monitors("r"), inA("s", "gpu-aaaaaaaa", withAdmin))},
		"admin access to a pre-created MIG device": {
			change: func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) }, rc: results(inA("r", migA+"19-6", withAdmin)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := partitionable()
			if c.change != nil {
				c.change(n, layout)
			}
			plan, err := advertising(n, layout).Resolve(allocated(c.rc))
			require.NoError(t, err)
			require.Len(t, plan.Results, len(c.rc))
			assert.Empty(t, cmp.Diff(c.preconditions, plan.Preconditions))
			assert.Empty(t, cmp.Diff(c.steps, plan.Steps))
		})
	}
}

func TestResolve_PreCreatedMIGDevice_Identified(t *testing.T) {
	t.Parallel()
	n, layout := partitionable()
	identity := static(&n.GPUs[0])
	plan, err := advertising(n, layout).Resolve(allocated(results(inA("r", migA+"19-6"), inA("s", migA+"9-0"))))
	require.NoError(t, err)
	assert.Equal(t, &identity, plan.Results[0].Device.(gpu.MIGDevice).Static)
	assert.Nil(t, plan.Results[1].Device.(gpu.MIGDevice).Static)
	require.Len(t, plan.Steps, 1)
	made, err := ParseMIG(plan.Steps[0].Args)
	require.NoError(t, err)
	assert.Equal(t, MIG{PCIBusID: "0000:3b:00.0", Profile: 9, Name: "3g.40gb", Placement: gpu.Placement{Start: 0, Size: 4}}, made)
	_, err = ParseMIG(json.RawMessage(`[]`))
	require.ErrorContains(t, err, "reading the arguments of step mig: ")
}

func TestResolve_MIGDeviceNotPossible_Refused(t *testing.T) {
	t.Parallel()
	const all = "gpu, mig 1g.10gb, mig 3g.40gb, mig 1g.10gb+me"
	for name, c := range map[string]struct {
		change func(*gpu.Node, gpu.Layout)
		rc     []resourceapi.DeviceRequestAllocationResult
		want   string
	}{
		"a profile that the GPU lacks": {
			rc:   results(inA("r", migA+"99-0")),
			want: `request "r", device ` + migA + `99-0: GPU ` + string(uuidA) + notAdvertised + all + again,
		},
		"a placement that the profile lacks": {
			rc:   results(inA("r", migA+"9-2")),
			want: `request "r", device ` + migA + `9-2: GPU ` + string(uuidA) + notAdvertised + all + again,
		},
		"a GPU without MIG": {
			rc: results(result("r", "gpu-bbbbbbbb-mig-19-0")),
			want: `request "r", device gpu-bbbbbbbb-mig-19-0: GPU ` + string(uuidB) + ` does not advertise it now: NVIDIA L40S has no MIG; ` +
				`it advertises: gpu` + again,
		},
		"an instance of an administrator is in the way": {
			change: func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) }, rc: results(inA("r", migA+"9-4")),
			want: `request "r", device ` + migA + `9-4: GPU ` + string(uuidA) + ` does not advertise it now: the node's configuration or the devices on ` +
				`the GPU changed; it advertises: mig 1g.10gb, mig 3g.40gb, mig 1g.10gb+me` + again,
		},
		"another pool since": {
			change: func(_ *gpu.Node, l gpu.Layout) { delete(l, uuidA) }, rc: results(inA("r", "gpu-aaaaaaaa")),
			want: `request "r", device gpu-aaaaaaaa: it was allocated from pool "n0/gpu-aaaaaaaa", and is in pool "n0" since the node's ` +
				`configuration changed` + again,
		},
		"the pool of the whole GPUs": {
			rc: results(result("r", migA+"9-4")),
			want: `request "r", device ` + migA + `9-4: it was allocated from pool "n0", and is in pool "n0/gpu-aaaaaaaa" since the node's ` +
				`configuration changed` + again,
		},
		"admin access to a MIG device that is not made": {
			rc:   results(inA("r", migA+"9-4", withAdmin)),
			want: `request "r", device ` + migA + `9-4: a MIG device that is made for a claim cannot be requested with adminAccess` + monitorInstead,
		},
		"two MIG devices at one placement": {
			rc:   results(inA("r", migA+"9-4"), inA("s", migA+"19-6")),
			want: `request "s", device ` + migA + `19-6: required MIG placement on GPU ` + string(uuidA) + alsoAllocated,
		},
		"two MIG devices with media extensions": {
			rc:   results(inA("r", migA+"20-0"), inA("s", migA+"20-6")),
			want: `request "s", device ` + migA + `20-6: required MIG placement on GPU ` + string(uuidA) + alsoAllocated,
		},
		"the whole GPU and a MIG device": {
			rc:   results(inA("r", "gpu-aaaaaaaa"), inA("s", migA+"19-6")),
			want: `request "s", device ` + migA + `19-6: GPU ` + string(uuidA) + alsoAllocated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := partitionable()
			if c.change != nil {
				c.change(n, layout)
			}
			requireRefused(t, advertising(n, layout), allocated(c.rc), c.want)
		})
	}
}
