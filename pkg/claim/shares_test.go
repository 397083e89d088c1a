package claim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	poolB      = nodeName + "/gpu-bbbbbbbb"
	timeSliceA = "gpu-aaaaaaaa-timeslice"
	timeSliceB = "gpu-bbbbbbbb-timeslice"
)

// timeSliced is a node both of whose GPUs are advertised for several claims; A also whole and as MIG devices.
func timeSliced() (*gpu.Node, gpu.Layout) {
	n, layout := partitionable()
	a := layout[uuidA]
	a.TimeSlice, a.OneShare = &gpu.Replicas{Count: 4, ShareName: "gpu-shared"}, true
	a.MIGReplicas = map[string]int{"1g.10gb": 7}
	layout[uuidA] = a
	layout[uuidB] = gpu.Modes{TimeSlice: &gpu.Replicas{Count: 2, Resource: "nvidia.com/gpu.shared"}, OneShare: true}
	return n, layout
}

// aShare is a share that was allocated to a request.
func aShare(request, pool, device, id string) resourceapi.DeviceRequestAllocationResult {
	return result(request, device, withPool(pool), func(r *resourceapi.DeviceRequestAllocationResult) {
		r.ShareID = new(types.UID(id))
		r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"shares": resource.MustParse("1"), "memory": resource.MustParse("0")}
	})
}

func TestResolve_Shares_Planned(t *testing.T) {
	t.Parallel()
	n, layout := timeSliced()
	a, b := &n.GPUs[0], &n.GPUs[1]
	one := map[string]string{"shares": "1", "memory": "0"}
	onA := Result{Request: "r", Pool: poolA, Device: gpu.TimeSliced{GPU: a, Replicas: 4, ShareName: "gpu-shared"}, ShareID: "1", Consumed: one}
	onB := Result{Request: "r", Pool: poolB, Device: gpu.TimeSliced{GPU: b, Replicas: 2}, ShareID: "2", Consumed: one}
	again := onA
	again.Request, again.ShareID = "s", "3"
	for name, c := range map[string]struct {
		rc            []resourceapi.DeviceRequestAllocationResult
		want          []Result
		preconditions []Precondition
	}{
		"a GPU that can be partitioned": {
			results(aShare("r", poolA, timeSliceA, "1")), []Result{onA}, []Precondition{{Kind: PreconditionNoMIGMode, Target: uuidA}},
		},
		"a GPU that cannot be partitioned needs nothing": {results(aShare("r", poolB, timeSliceB, "2")), []Result{onB}, nil},
		"two GPUs for one request": {
			results(aShare("r", poolA, timeSliceA, "1"), aShare("r", poolB, timeSliceB, "2")), []Result{onA, onB}, []Precondition{{Kind: PreconditionNoMIGMode, Target: uuidA}},
		},
		"one GPU for two requests": {
			results(aShare("r", poolA, timeSliceA, "1"), aShare("s", poolA, timeSliceA, "3")), []Result{onA, again}, []Precondition{{Kind: PreconditionNoMIGMode, Target: uuidA}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := advertising(n, layout).Resolve(allocated(c.rc))
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(c.want, plan.Results))
			assert.Empty(t, cmp.Diff(c.preconditions, plan.Preconditions))
			assert.Empty(t, plan.Steps)
		})
	}
}

// A request of an extended resource for several is refused if the configuration says so. A claim that people write is not.
func TestResolve_ExtendedResource_OneShareOnly(t *testing.T) {
	t.Parallel()
	const fix = "; request one, or set failRequestsGreaterThanOne: false in the node's configuration (will be retried)"
	small := "gpu-aaaaaaaa-mig-19-6"
	for name, c := range map[string]struct {
		change func(*gpu.Node, gpu.Layout)
		rc     []resourceapi.DeviceRequestAllocationResult
		want   string
	}{
		"two": {
			nil, results(aShare("r", poolA, timeSliceA, "1"), aShare("r", poolB, timeSliceB, "2")),
			`request "r", device ` + timeSliceA + `: request for 'nvidia.com/gpu: 2' too large: maximum request size for shared resources is 1` + fix,
		},
		"by another name": {
			nil, results(result("r", "gpu-aaaaaaaa", withPool(poolA)), aShare("r", poolB, timeSliceB, "2")),
			`request "r", device ` + timeSliceB + `: request for 'nvidia.com/gpu.shared: 2' too large: maximum request size for shared resources is 1` + fix,
		},
		"of MIG devices": {
			func(n *gpu.Node, _ gpu.Layout) { static(&n.GPUs[0]) },
			results(aShare("r", poolA, small, "1"), aShare("r", poolA, small, "2")),
			`request "r", device ` + small + `: request for 'nvidia.com/mig-1g.10gb: 2' too large: maximum request size for shared resources is 1` + fix,
		},
		"of MIG devices by another name": {
			func(n *gpu.Node, l gpu.Layout) {
				static(&n.GPUs[0])
				modes := l[uuidA]
				modes.MIGResources = map[string]string{"1g.10gb": "nvidia.com/mig-1g.10gb.shared"}
				l[uuidA] = modes
			},
			results(aShare("r", poolA, small, "1"), aShare("r", poolA, small, "2")),
			`request "r", device ` + small + `: request for 'nvidia.com/mig-1g.10gb.shared: 2' too large: maximum request size for shared resources is 1` + fix,
		},
		"each of two containers one": {nil, results(aShare("r", poolA, timeSliceA, "1"), aShare("s", poolA, timeSliceA, "2")), ""},
		"where it is allowed": {
			func(_ *gpu.Node, l gpu.Layout) {
				for id, modes := range l {
					modes.OneShare = false
					l[id] = modes
				}
			}, results(aShare("r", poolA, timeSliceA, "1"), aShare("r", poolB, timeSliceB, "2")), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := timeSliced()
			if c.change != nil {
				c.change(n, layout)
			}
			rc := allocated(c.rc)
			rc.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
			_, err := advertising(n, layout).Resolve(rc)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

// TestResolve_ShareOfPreCreatedDeviceGone_WillBeRetried: it does not matter whether the free device there now is advertised. A device
// that the plugin makes would be for one claim alone.
func TestResolve_ShareOfPreCreatedDeviceGone_WillBeRetried(t *testing.T) {
	t.Parallel()
	n, layout := timeSliced()
	share := results(aShare("r", poolA, migA+"19-6", "1"))
	want := `request "r", device ` + migA + `19-6: MIG device ` + migA + `19-6 is not on GPU ` + string(uuidA) + ` any more; ` +
		`it was pre-created by an administrator of the node; nvidia-smi -L shows there the remaining devices (will be retried)`
	requireRefused(t, advertising(n, layout), allocated(share), want, "advertised as one that the plugin makes")
	a := layout[uuidA]
	a.Withheld = []gpu.Use{{Type: gpu.TypeMIG, Placement: gpu.Placement{Start: 6, Size: 1}}}
	layout[uuidA] = a
	requireRefused(t, advertising(n, layout), allocated(share), want, "not advertised")
	static(&n.GPUs[0])
	a.Withheld = nil
	layout[uuidA] = a
	plan, err := advertising(n, layout).Resolve(allocated(share))
	require.NoError(t, err, "there again")
	assert.Empty(t, plan.Steps)
}

func TestResolve_ShareNotPossible_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rc   []resourceapi.DeviceRequestAllocationResult
		want string
	}{
		"one request, twice the same GPU": {
			results(aShare("r", poolA, timeSliceA, "1"), aShare("r", poolA, timeSliceA, "2")),
			`request "r", device ` + timeSliceA + `: the request was allocated two shares of GPU ` + string(uuidA) + `, which are no more of it than one; ` +
				`add a constraint with distinctAttribute: gpu.prism.dev/parentUUID to the claim, and recreate it (not retryable)`,
		},
		"a share and the whole GPU": {
			results(aShare("r", poolA, timeSliceA, "1"), inA("s", "gpu-aaaaaaaa")),
			`request "s", device gpu-aaaaaaaa: GPU ` + string(uuidA) + alsoAllocated,
		},
		"a share and a MIG device": {
			results(inA("r", migA+"9-4"), aShare("s", poolA, timeSliceA, "1")),
			`request "s", device ` + timeSliceA + `: required MIG placement on GPU ` + string(uuidA) + alsoAllocated,
		},
		"admin access": {
			results(inA("r", timeSliceA, withAdmin)),
			`request "r", device ` + timeSliceA + `: time-sliced shares cannot be requested with adminAccess` + monitorInstead,
		},
		"a GPU that is not shared any more": {
			results(aShare("r", poolB, "gpu-bbbbbbbb", "1")),
			`request "r", device gpu-bbbbbbbb: GPU ` + string(uuidB) + notAdvertised + `timeslice` + again,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := timeSliced()
			requireRefused(t, advertising(n, layout), allocated(c.rc), c.want)
		})
	}
}
