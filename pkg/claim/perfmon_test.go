package claim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	perfmonA = "gpu-aaaaaaaa-perfmon"
	// ofPerfmon ends the refusal of an option.
	ofPerfmon = " is not supported for a perfmon device, which only reserves the performance counters of a GPU"
)

// reserves is an allocation result of the counters of a GPU.
func reserves(request, device string, change ...func(*resourceapi.DeviceRequestAllocationResult)) resourceapi.DeviceRequestAllocationResult {
	return result(request, device, append([]func(*resourceapi.DeviceRequestAllocationResult){withPool(nodeName + "/monitor")}, change...)...)
}

// TestResolve_Perfmon_BesideEveryDevice: it plans nothing, and is in a claim with any other device of its GPU.
func TestResolve_Perfmon_BesideEveryDevice(t *testing.T) {
	t.Parallel()
	n, layout := timeSliced()
	a := &n.GPUs[0]
	for name, with := range map[string]resourceapi.DeviceRequestAllocationResult{
		"whole GPU": inA("gpu", "gpu-aaaaaaaa"), "MIG device": inA("gpu", migA+"19-6"), "share": aShare("gpu", poolA, timeSliceA, "1"),
	} {
		alone, err := advertising(n, layout).Resolve(allocated(results(with)))
		require.NoError(t, err, name)
		plan, err := advertising(n, layout).Resolve(allocated(results(with, reserves("counters", perfmonA))))
		require.NoError(t, err, name)
		assert.Equal(t, Result{Request: "counters", Pool: nodeName + "/monitor", Device: gpu.Perfmon{GPU: a}}, plan.Results[1], name)
		assert.Equal(t, alone.Steps, plan.Steps, name)
		assert.Equal(t, alone.Preconditions, plan.Preconditions, name)
	}
}

func TestResolve_Perfmon_Refused(t *testing.T) {
	t.Parallel()
	const at, out = `request "counters", device ` + perfmonA + `: `, "; take it out of the ResourceClaim (not retryable)"
	asks := func(raw string, requests ...string) *resourceapi.ResourceClaim {
		return allocated(results(reserves("counters", perfmonA)), config(fromClaim, driverName, raw, requests...))
	}
	for name, c := range map[string]struct {
		rc   *resourceapi.ResourceClaim
		want string
	}{
		"admin access": {
			allocated(results(reserves("counters", perfmonA, withAdmin))),
			at + "a perfmon device cannot be requested with adminAccess: it is the exclusive right to the performance counters of a GPU; " +
				"take adminAccess out of the request (not retryable)",
		},
		"sharing":          {asks(sharingConfig, "counters"), at + "GPUConfig.sharing" + ofPerfmon + out},
		"MPS":              {asks(mpsConfig, "counters"), at + "GPUConfig.sharing" + ofPerfmon + out},
		"enforceMemory":    {asks(enforceConfig, "counters"), at + "GPUConfig.enforceMemory" + ofPerfmon + out},
		"GPUMetricsConfig": {asks(metricsConfig, "counters"), at + "GPUMetricsConfig" + ofPerfmon + out},
		"ProfilerConfig":   {asks(profilerConfig, "counters"), at + "ProfilerConfig" + ofPerfmon + out},
		"of the class": {
			allocated(results(reserves("counters", perfmonA)), config(fromClass, driverName, metricsConfig, "counters")),
			at + "GPUMetricsConfig" + ofPerfmon + "; take it out of the DeviceClass (not retryable)",
		},
		"the same counters twice": {
			allocated(results(reserves("first", perfmonA), reserves("counters", perfmonA))),
			at + `right to the performance counters of GPU ` + string(uuidA) + ` was also allocated to request "first" of the same claim; delete the claim so that it is allocated again (not retryable)`,
		},
		"GPU lost": {
			allocated(results(reserves("counters", "gpu-cccccccc-perfmon"))),
			`request "counters", device gpu-cccccccc-perfmon: GPU ` + string(uuidC) + ` of node n0 does not answer: GPU is lost; reset the GPU or drain the node (will be retried)`,
		},
		"pool of the node": {
			allocated(results(result("counters", perfmonA))),
			at + `GPU ` + string(uuidA) + ` does not advertise it now: the node's configuration or the devices on the GPU changed; it advertises: gpu; ` +
				`delete the pod so that it is scheduled again (not retryable)`,
		},
	} {
		requireRefused(t, source(node()), c.rc, c.want, name)
	}
	never := source(node())
	never.Additional.Perfmon = false
	requireRefused(t, never, allocated(results(reserves("counters", perfmonA))), at+
		"node n0 has no perfmon devices now: the chart's value deviceClasses.perfmonDevices is not PerGPU; delete the pod so that it is scheduled again (not retryable)")
	_, err := never.Resolve(allocated(results(monitors("see"))))
	require.NoError(t, err)
}

// TestResolve_PerfmonBesideGPU_ConfigForAllRequests_OfTheGPU: a configuration that names no request, and the defaults of the cluster, are
// for the GPUs of the claim.
func TestResolve_PerfmonBesideGPU_ConfigForAllRequests_OfTheGPU(t *testing.T) {
	t.Parallel()
	on := []*v1alpha1.ProfilerConfig{profiled(t, `"failurePolicy":"FailClosed"`)}
	for name, p := range map[string]*fakeProfiler{"no defaults": {}, "defaults": {defaults: on}} {
		rc := allocated(results(reserves("counters", perfmonA), result("gpu", "gpu-aaaaaaaa")),
			config(fromClaim, driverName, sharingConfig), config(fromClaim, driverName, metricsConfig), config(fromClaim, driverName, forProfiler("")))
		rc.UID = aUID
		plan, err := profiling(p).Resolve(rc)
		require.NoError(t, err, name)
		assert.False(t, isProfiled(&plan.Results[0]), name)
		assert.Nil(t, metricsIn(&plan.Results[0]), name)
		assert.True(t, isProfiled(&plan.Results[1]), name)
		assert.NotNil(t, metricsIn(&plan.Results[1]), name)
	}
	for _, p := range []*fakeProfiler{{defaults: on}, {undecided: errors.New("labels unknown")}} {
		plan, err := profiling(p).Resolve(allocated(results(reserves("counters", perfmonA))))
		require.NoError(t, err)
		assert.Nil(t, profileIn(plan))
	}
}

// TestValidator_Perfmon_JudgedWhenWritten: the same is refused as soon as a claim is written.
func TestValidator_Perfmon_JudgedWhenWritten(t *testing.T) {
	t.Parallel()
	const at = `spec.devices.config[0].opaque.parameters: request "counters": `
	for name, c := range map[string]struct {
		admin    bool
		raw      string
		requests []string
		want     string
	}{
		"nothing":                   {},
		"admin access":              {admin: true, want: `spec.devices.requests: request "counters": ` + adminPerfmon},
		"sharing":                   {raw: sharingConfig, requests: []string{"counters"}, want: at + "GPUConfig.sharing" + ofPerfmon},
		"GPUMetricsConfig":          {raw: metricsConfig, requests: []string{"counters"}, want: at + "GPUMetricsConfig" + ofPerfmon},
		"ProfilerConfig":            {raw: profilerConfig, requests: []string{"counters"}, want: at + "ProfilerConfig" + ofPerfmon},
		"GPUMetricsConfig of GPUs":  {raw: metricsConfig},
		"ProfilerConfig of the GPU": {raw: profilerConfig, requests: []string{"gpu"}},
		"NsightSystems of the GPU":  {raw: forMetrics(`"source":"NsightSystems"`), requests: []string{"gpu"}},
		"NsightSystems":             {raw: forMetrics(`"source":"NsightSystems"`), requests: []string{"counters"}, want: at + "GPUMetricsConfig" + ofPerfmon},
	} {
		spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driverName}},
			{Name: "counters", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "perfmon." + driverName, AdminAccess: &c.admin}},
		}}}
		if c.raw != "" {
			spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
				{Requests: c.requests, DeviceConfiguration: config(fromClaim, driverName, c.raw).DeviceConfiguration},
			}
		}
		err := Validator{Driver: driverName}.Claim("spec", spec)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.EqualError(t, err, c.want, name)
	}
}
