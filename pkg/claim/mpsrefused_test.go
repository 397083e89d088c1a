package claim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	several = "a container can use only one with MPS: its processes connect to one MPS control daemon, which serves one GPU; " +
		"set count: 1, and add a request for each container that is to have another GPU (not retryable)"
	monitorInstead = "; request a device of class monitor.gpu.prism.dev to monitor the GPUs of a node; the chart's value monitorDevices: PerNode adds it " +
		"(not retryable)"
	again = "; delete the pod so that it is scheduled again (not retryable)"
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
			want: onB + `GPU ` + string(uuidB) + ` does not advertise it now: the node's configuration or the devices on the GPU changed; ` +
				`it advertises: timeslice` + again,
		},
		"the whole GPU besides": {
			rc: allocated(results(anMPSShare("r", poolA, mpsA, "1", "memory", "2Gi"), inA("s", "gpu-aaaaaaaa"))),
			want: `request "s", device gpu-aaaaaaaa: GPU ` + string(uuidA) + ` was also allocated to request "r" of the same claim; ` +
				`delete the claim so that it is allocated again (not retryable)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, layout := mpsShared()
			if c.change != nil {
				c.change(n, layout)
			}
			plan, err := advertising(n, layout).Resolve(c.rc)
			assert.Nil(t, plan)
			refusal, ok := errors.AsType[*Refusal](err)
			require.True(t, ok, "%v is no *Refusal", err)
			assert.Equal(t, c.want, refusal.Error())
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

// A request that is wrong for every allocation is refused when the claim is written.
func TestValidator_MPSRequests_ProblemsWithPath(t *testing.T) {
	t.Parallel()
	const at = `spec.devices.requests: request "r": `
	const onlyOne = "count must be 1, got 2: a container can use only one with MPS: its processes connect to one MPS control daemon, which serves one GPU; " +
		"add a request for each container that is to have another GPU"
	exactly := func(fields, config string) string {
		devices := `{requests: [{name: r, exactly: {` + fields + `}}]`
		if config != "" {
			devices += `, config: [{opaque: {driver: gpu.prism.dev, parameters: ` + config + `}}]`
		}
		return devices + `}`
	}
	for name, c := range map[string]struct{ devices, want string }{
		"a share": {exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {memory: 2Gi, activeThreadPercentage: "100"}}`, ""), ""},
		"several": {exactly("deviceClassName: mps.gpu.prism.dev, count: 2", ""), at + onlyOne},
		"all":     {exactly("deviceClassName: mps.gpu.prism.dev, allocationMode: All", ""), ""},
		"admin access": {
			exactly("deviceClassName: mps.gpu.prism.dev, adminAccess: true", ""), at + "MPS shares cannot be requested with adminAccess",
		},
		"a percentage out of range": {
			exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {activeThreadPercentage: "101"}}`, ""),
			at + "capacity.requests.activeThreadPercentage must be between 0 and 100, got 101",
		},
		"a percentage out of range, in the driver's domain": {
			exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {gpu.prism.dev/activeThreadPercentage: "101"}}`, ""),
			at + "capacity.requests.activeThreadPercentage must be between 0 and 100, got 101",
		},
		"strategy MPS":                     {exactly("deviceClassName: gpu.prism.dev", mpsConfig), ""},
		"strategy MPS for several GPUs":    {exactly("deviceClassName: gpu.prism.dev, count: 2", mpsConfig), at + onlyOne},
		"strategy MPS of another class":    {exactly("deviceClassName: other, count: 2", mpsConfig), at + onlyOne},
		"strategy MPS for all GPUs":        {exactly("deviceClassName: gpu.prism.dev, allocationMode: All", mpsConfig), ""},
		"several GPUs without MPS":         {exactly("deviceClassName: gpu.prism.dev, count: 2", longConfig), ""},
		"several GPUs of a class with MPS": {exactly("deviceClassName: mps-class, count: 2", plainConfig), at + onlyOne},
		"another strategy than the class":  {exactly("deviceClassName: mps-class, count: 2", longConfig), ""},
		"enforced memory with MPS": {
			exactly("deviceClassName: mps-class", enforceConfig),
			at + "enforceMemory is not supported with strategy MPS: the memory limits of MPS are cooperative, as programs can lift them",
		},
		"strategy MPS with admin access": {
			exactly("deviceClassName: gpu.prism.dev, adminAccess: true", mpsConfig),
			`spec.devices.config[0].opaque.parameters: request "r": strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim`,
		},
		"time-slicing of a share": {
			exactly("deviceClassName: mps.gpu.prism.dev", longConfig),
			`spec.devices.config[0].opaque.parameters: request "r": GPUConfig.sharing with strategy TimeSlicing is not supported for a device of type "mps"; ` +
				`supported values: MPS`,
		},
		"limits out of range": {
			exactly("deviceClassName: mps.gpu.prism.dev", sharing(`{"mps":{"activeThreadPercentage":101,"memoryLimit":"1.5Mi"}}`)),
			`spec.devices.config[0].opaque.parameters: GPUConfig: sharing.mps.activeThreadPercentage: must be between 0 and 100, got 101; ` +
				`sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 1536Ki`,
		},
		"one alternative can": {
			`{requests: [{name: r, firstAvailable: [{name: a, deviceClassName: mps.gpu.prism.dev, count: 2}, {name: b, deviceClassName: gpu.prism.dev, count: 2}]}]}`, "",
		},
		"no alternative can": {
			`{requests: [{name: r, firstAvailable: [{name: a, deviceClassName: mps.gpu.prism.dev, count: 2}]}]}`,
			`spec.devices.requests: request "r/a": ` + onlyOne,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := &resourceapi.ResourceClaimSpec{}
			require.NoError(t, yaml.UnmarshalStrict([]byte("devices: "+c.devices), spec))
			err := Validator{Driver: driverName, Class: classes}.Claim("spec", spec)
			if c.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.EqualError(t, err, c.want)
		})
	}
}
