package claim

import (
	"encoding/json"
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
	mpsA = "gpu-aaaaaaaa-mps"
	mpsB = "gpu-bbbbbbbb-mps"
	gib  = int64(1) << 30
)

// mpsShared is a node both of whose GPUs are shared with MPS: A by claims of 1Gi to 20Gi, 40Gi together, and also advertised whole and as
// MIG devices; B by two claims of 2Gi each, of namespace default.
func mpsShared() (*gpu.Node, gpu.Layout) {
	n, layout := partitionable()
	for i := range n.GPUs {
		n.GPUs[i].Product.ComputeCapability, n.GPUs[i].Capacity.MemoryBytes = "9.0", uint64(80*gib)
	}
	for i := range n.GPUs[0].MIG.Profiles {
		n.GPUs[0].MIG.Profiles[i].Capacity.MemoryBytes = uint64(10 * gib)
	}
	a := layout[uuidA]
	a.MPS = &gpu.MPSSharing{ShmBytes: 2 * gib, MPSSize: gpu.MPSSize{
		Replicas: 4, Threads: gpu.MPSThreads{Default: 25, Total: 100},
		Memory: gpu.MPSMemory{Total: 40 * gib, Default: 10 * gib, Min: gib, Max: 20 * gib, Step: mebibyte},
	}}
	layout[uuidA] = a
	layout[uuidB] = gpu.Modes{MPS: &gpu.MPSSharing{
		ShareName: "gpu-2gb", Resource: "nvidia.com/gpu-2gb", Namespaces: []string{"default", "team-a"},
		MPSSize: gpu.MPSSize{
			Replicas: 2, Memory: gpu.MPSMemory{Total: 4 * gib, Default: 2 * gib, Min: 2 * gib, Max: 2 * gib, Step: mebibyte},
		},
	}}
	return n, layout
}

// anMPSShare is a share that was allocated to a request, with these capacities.
func anMPSShare(request, pool, device, id string, capacities ...string) resourceapi.DeviceRequestAllocationResult {
	return result(request, device, withPool(pool), func(r *resourceapi.DeviceRequestAllocationResult) {
		r.ShareID = new(types.UID(id))
		r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"shares": resource.MustParse("1")}
		for i := 0; i < len(capacities); i += 2 {
			r.ConsumedCapacity[resourceapi.QualifiedName(capacities[i])] = resource.MustParse(capacities[i+1])
		}
	})
}

// serves is the step by which the daemon of a GPU serves a result.
func serves(id gpu.UUID, device, share, args string) Step {
	return Step{Kind: StepMPS, Target: id, Device: gpu.DeviceName(device), ShareID: share, Args: json.RawMessage(args)}
}

// mpsDefaults are the args that the steps of shares of A and B have in common.
const (
	defaultsA = `"default":{"memoryMiB":20480,"shmBytes":2147483648},"bounds":{"memoryMiB":40960,"activeThreadPercentage":100,"shares":4}}`
	defaultsB = `"default":{"memoryMiB":2048,"shmBytes":1073741824},"bounds":{"memoryMiB":4096,"shares":2}}`
)

func TestResolve_MPSShares_OneStepEach(t *testing.T) {
	t.Parallel()
	noMIG := []Precondition{{Kind: PreconditionNoMIGMode, Target: uuidA}}
	lowered := `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"mps":{"memoryLimit":"1536Mi","activeThreadPercentage":40}}}`
	for name, c := range map[string]struct {
		rc            *resourceapi.ResourceClaim
		steps         []Step
		uses          []MPSUse
		preconditions []Precondition
	}{
		"what the scheduler allocated": {
			rc:            allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "2048Mi", "activeThreadPercentage", "50"))),
			steps:         []Step{serves(uuidA, mpsA, "1", `{"daemon":"aaaaaaaa","memoryMiB":2048,"activeThreadPercentage":50,`+defaultsA)},
			uses:          []MPSUse{{Daemon: "aaaaaaaa", MemoryMiB: 2048, ActiveThreadPercentage: 50}},
			preconditions: noMIG,
		},
		"capacities in the driver's domain": {
			rc: allocated(results(anMPSShare("r", poolA, mpsA, "1", driverName+"/memory", "2048Mi", driverName+"/activeThreadPercentage", "50",
				"activeThreadPercentage", "0", "example.com/memory", "1Gi"))),
			steps:         []Step{serves(uuidA, mpsA, "1", `{"daemon":"aaaaaaaa","memoryMiB":2048,"activeThreadPercentage":50,`+defaultsA)},
			uses:          []MPSUse{{Daemon: "aaaaaaaa", MemoryMiB: 2048, ActiveThreadPercentage: 50}},
			preconditions: noMIG,
		},
		"no cap of the percentage": {
			rc:            allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "1Gi", "activeThreadPercentage", "0"))),
			steps:         []Step{serves(uuidA, mpsA, "1", `{"daemon":"aaaaaaaa","memoryMiB":1024,`+defaultsA)},
			uses:          []MPSUse{{Daemon: "aaaaaaaa", MemoryMiB: 1024}},
			preconditions: noMIG,
		},
		"a GPU with one share has the defaults": {
			rc:            allocated(results(inA("r", mpsA))),
			steps:         []Step{serves(uuidA, mpsA, "", `{"daemon":"aaaaaaaa","memoryMiB":10240,"activeThreadPercentage":25,`+defaultsA)},
			uses:          []MPSUse{{Daemon: "aaaaaaaa", MemoryMiB: 10240, ActiveThreadPercentage: 25}},
			preconditions: noMIG,
		},
		"lowered by the claim": {
			rc: allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "2Gi", "activeThreadPercentage", "50")),
				config(fromClaim, driverName, lowered)),
			steps:         []Step{serves(uuidA, mpsA, "1", `{"daemon":"aaaaaaaa","memoryMiB":1536,"activeThreadPercentage":40,`+defaultsA)},
			uses:          []MPSUse{{Daemon: "aaaaaaaa", MemoryMiB: 1536, ActiveThreadPercentage: 40}},
			preconditions: noMIG,
		},
		"a percentage where none was allocated": {
			rc: allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi", "activeThreadPercentage", "0")),
				config(fromClass, driverName, mpsConfig)),
			steps: []Step{serves(uuidB, mpsB, "1", `{"daemon":"bbbbbbbb","memoryMiB":2048,"activeThreadPercentage":50,`+defaultsB)},
			uses:  []MPSUse{{Daemon: "bbbbbbbb", MemoryMiB: 2048, ActiveThreadPercentage: 50}},
		},
		"one GPU for two requests": {
			rc: allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"), anMPSShare("s", poolB, mpsB, "2", "memory", "2Gi"))),
			steps: []Step{
				serves(uuidB, mpsB, "1", `{"daemon":"bbbbbbbb","memoryMiB":2048,`+defaultsB),
				serves(uuidB, mpsB, "2", `{"daemon":"bbbbbbbb","memoryMiB":2048,`+defaultsB),
			},
			uses: []MPSUse{{Daemon: "bbbbbbbb", MemoryMiB: 2048}, {Daemon: "bbbbbbbb", MemoryMiB: 2048}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := mpsShared()
			plan, err := advertising(n, layout).Resolve(c.rc)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(c.steps, plan.Steps))
			assert.Empty(t, cmp.Diff(c.preconditions, plan.Preconditions))
			for i, use := range c.uses {
				assert.Equal(t, &use, mpsOf(&plan.Results[i]))
				args, err := ParseMPS(plan.Steps[i].Args)
				require.NoError(t, err)
				assert.Equal(t, use, args.MPSUse)
			}
		})
	}
	_, err := ParseMPS(json.RawMessage(`[]`))
	require.ErrorContains(t, err, "reading the arguments of step mps: ")
}
