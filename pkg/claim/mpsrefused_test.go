package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	several = "a container can use only one with MPS: its processes connect to one MPS control daemon, which serves one GPU; " +
		"set count: 1, and add a request for each container that is to have another GPU (not retryable)"
	monitorInstead = "; request a device of class monitor.gpu.prism.dev to monitor the GPUs of a node; the chart's value monitorDevices: PerNode adds it " +
		"(not retryable)"
	again         = "; delete the pod so that it is scheduled again (not retryable)"
	alsoAllocated = ` was also allocated to request "r" of the same claim; delete the claim so that it is allocated again (not retryable)`
	notAdvertised = " does not advertise it now: the node's configuration or the devices on the GPU changed; it advertises: "
	forbidden     = ": must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class (not retryable)"
)

// sharing is a GPUConfig with these settings.
func sharing(fields string) string {
	return `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":` + fields + `}`
}

func TestResolve_MPSShareNotPossible_Refused(t *testing.T) {
	t.Parallel()
	one := func(capacities ...string) []resourceapi.DeviceRequestAllocationResult {
		return results(anMPSShare("r", poolA, mpsA, "1", capacities...))
	}
	onA, onB := `request "r", device `+mpsA+`: `, `request "r", device `+mpsB+`: `
	for name, c := range map[string]struct {
		change func(*gpu.Node, gpu.Layout)
		rc     *resourceapi.ResourceClaim
		want   string
	}{
		"several GPUs": {
			rc:   allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "1Gi"), anMPSShare("r", poolB, mpsB, "2", "memory", "2Gi"))),
			want: onA + "the request was allocated 2 devices, and " + several,
		},
		"several shares of one GPU": {
			rc:   allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"), anMPSShare("r", poolB, mpsB, "2", "memory", "2Gi"))),
			want: onB + "the request was allocated 2 devices, and " + several,
		},
		"admin access": {
			rc: allocated(results(inA("r", mpsA, withAdmin))), want: onA + "MPS shares cannot be requested with adminAccess" + monitorInstead,
		},
		"a namespace that is not allowed": {
			change: func(_ *gpu.Node, l gpu.Layout) { l[uuidB].MPS.Namespaces = []string{"team-a", "team-b"} },
			rc:     allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"))),
			want: onB + `claims of namespace "default" cannot use MPS shares of GPU ` + string(uuidB) + `; ` +
				`request a share of another GPU, or have the node's administrator add the namespace to mps.namespaces in the node's configuration (will be retried)`,
		},
		"a percentage out of range": {
			rc: allocated(one("memory", "1Gi", "activeThreadPercentage", "101")),
			want: onA + "the request was allocated activeThreadPercentage 101, which must be between 0 and 100; " +
				"correct capacity.requests.activeThreadPercentage of the request, and recreate the claim (not retryable)",
		},
		"a part of a percentage": {
			rc: allocated(one("memory", "1Gi", "activeThreadPercentage", "500m")),
			want: onA + "the request was allocated activeThreadPercentage 500m, which is not an integer; " +
				"correct capacity.requests.activeThreadPercentage of the request, and recreate the claim (not retryable)",
		},
		"too little memory": {
			rc: allocated(one("memory", "512Mi")),
			want: onA + "the request was allocated 512Mi of memory, and an MPS share of GPU " + string(uuidA) + " has 1Gi to 20Gi; " +
				"correct capacity.requests.memory of the request, and recreate the claim (not retryable)",
		},
		"too much memory": {
			rc: allocated(one("memory", "21Gi")),
			want: onA + "the request was allocated 21Gi of memory, and an MPS share of GPU " + string(uuidA) + " has 1Gi to 20Gi; " +
				"correct capacity.requests.memory of the request, and recreate the claim (not retryable)",
		},
		"no memory": {
			rc: allocated(one("memory", "0")),
			want: onA + "the request was allocated 0 of memory, and an MPS share of GPU " + string(uuidA) + " has 1Gi to 20Gi; " +
				"correct capacity.requests.memory of the request, and recreate the claim (not retryable)",
		},
		"more memory than allocated": {
			rc: allocated(one("memory", "2Gi"), config(fromClaim, driverName, sharing(`{"mps":{"memoryLimit":"2049Mi"}}`))),
			want: onA + "GPUConfig.sharing.mps.memoryLimit 2049Mi is more than the 2Gi that the request was allocated; " +
				"lower the limit, or request more with capacity.requests.memory (not retryable)",
		},
		"a higher percentage than allocated": {
			rc: allocated(one("memory", "2Gi", "activeThreadPercentage", "49"), config(fromClaim, driverName, mpsConfig)),
			want: onA + "GPUConfig.sharing.mps.activeThreadPercentage 50 is more than the 49 that the request was allocated; " +
				"lower the limit, or request more with capacity.requests.activeThreadPercentage (not retryable)",
		},
		"no percentage where one was allocated": {
			rc: allocated(one("memory", "2Gi", "activeThreadPercentage", "50"),
				config(fromClaim, driverName, sharing(`{"mps":{"activeThreadPercentage":0}}`))),
			want: onA + "GPUConfig.sharing.mps.activeThreadPercentage 0, which means no limit, is more than the 50 that the request was allocated; " +
				"lower the limit, or request more with capacity.requests.activeThreadPercentage (not retryable)",
		},
		"time-slicing": {
			rc: allocated(one("memory", "2Gi"), config(fromClaim, driverName, longConfig)),
			want: onA + `GPUConfig.sharing with strategy TimeSlicing is not supported for a device of type "mps"; supported values: MPS; ` +
				`take it out of the ResourceClaim (not retryable)`,
		},
		"enforced memory": {
			rc: allocated(one("memory", "2Gi"), config(fromClass, driverName, enforceConfig)),
			want: onA + `GPUConfig.enforceMemory is not supported for a device of type "mps": the memory limits of MPS are cooperative, as programs can ` +
				`lift them; take it out of the DeviceClass (not retryable)`,
		},
		"before Volta": {
			change: func(n *gpu.Node, _ gpu.Layout) {
				n.GPUs[1].Product = gpu.Product{Name: "Tesla P4", ComputeCapability: "6.1"}
			},
			rc: allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"))),
			want: onB + "a GPU of compute capability 6.1 (Tesla P4) cannot be shared with MPS: that requires 7.0 (Volta) or later; " +
				"take mps out of the modes of this GPU in the node's configuration (not retryable)",
		},
		"not shared any more": {
			change: func(_ *gpu.Node, l gpu.Layout) { l[uuidB] = gpu.Modes{TimeSlice: &gpu.Replicas{Count: 2}} },
			rc:     allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"))),
			want:   onB + `GPU ` + string(uuidB) + notAdvertised + `timeslice` + again,
		},
		"the whole GPU besides": {
			rc:   allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "2Gi"), inA("s", "gpu-aaaaaaaa"))),
			want: `request "s", device gpu-aaaaaaaa: GPU ` + string(uuidA) + alsoAllocated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := mpsShared()
			if c.change != nil {
				c.change(n, layout)
			}
			requireRefused(t, advertising(n, layout), c.rc, c.want)
		})
	}
}

// A request of an extended resource for two is refused with the text of NVIDIA's device plugin before anything else.
func TestResolve_ExtendedResourceOfMPSShares_OneOnly(t *testing.T) {
	t.Parallel()
	n, layout := mpsShared()
	for id, modes := range layout {
		modes.OneShare = true
		layout[id] = modes
	}
	rc := allocated(results(anMPSShare("r", poolB, mpsB, "1", "memory", "2Gi"), anMPSShare("r", poolB, mpsB, "2", "memory", "2Gi")))
	rc.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	_, err := advertising(n, layout).Resolve(rc)
	require.EqualError(t, err, `request "r", device `+mpsB+`: request for 'nvidia.com/gpu-2gb: 2' too large: maximum request size for shared resources is 1`+
		`; request one, or set failRequestsGreaterThanOne: false in the node's configuration (will be retried)`)
}

func TestMPSBounds_SumsOfShares_Checked(t *testing.T) {
	t.Parallel()
	two := []MPSUse{{MemoryMiB: 2048, ActiveThreadPercentage: 50}, {MemoryMiB: 2048, ActiveThreadPercentage: 51}}
	for name, c := range map[string]struct {
		bounds *MPSBounds
		want   string
	}{
		"all":             {&MPSBounds{MemoryMiB: 4096, ActiveThreadPercentage: 101, Shares: 2}, ""},
		"no bounds":       {&MPSBounds{}, ""},
		"a device alone":  {nil, ""},
		"too many":        {&MPSBounds{Shares: 1}, "the GPU would have 2 MPS shares, and may have 1"},
		"too much memory": {&MPSBounds{MemoryMiB: 4095}, "the MPS shares of the GPU would have 4096 MiB of memory together, and may have 4095 MiB"},
		"too many threads": {
			&MPSBounds{ActiveThreadPercentage: 100}, "the MPS shares of the GPU would have an active thread percentage of 101 together, and may have 100",
		},
	} {
		assert.Equal(t, c.want, c.bounds.Exceeded(two), name)
	}
}
