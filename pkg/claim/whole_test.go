package claim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	shortConfig    = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"timeSlicing":{"interval":"Short"}}}`
	longConfig     = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","sharing":{"strategy":"TimeSlicing","timeSlicing":{"interval":"Long"}}}`
	lockedConfig   = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"GPUConfig","claimOverride":"Forbidden","sharing":{"timeSlicing":{"interval":"Short"}}}`
	nvidiaLong     = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Long"}}}`
	nvidiaPlain    = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{"strategy":"TimeSlicing"}}`
	nvidiaMPS      = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{"strategy":"MPS","mpsConfig":{"defaultActiveThreadPercentage":50}}}`
	nvidiaMIG      = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"MigDeviceConfig","sharing":{"strategy":"TimeSlicing"}}`
	nvidiaNonsense = `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","shares":2}`
)

// under is the source of a driver of that name.
func under(driver string) Source {
	s := source(node())
	s.Driver = driver
	return s
}

// sets is the step that sets a GPU's interval.
func sets(id gpu.UUID, interval string) Step {
	return Step{Kind: StepInterval, Target: id, Device: gpu.DeviceName("gpu-" + id[4:12]), Args: []byte(`{"interval":"` + interval + `"}`)}
}

func TestResolve_Intervals_OneStepEach(t *testing.T) {
	t.Parallel()
	one, nvidia := results(result("gpu", "gpu-aaaaaaaa")), results(result("gpu", "gpu-aaaaaaaa", withDriver(nvidiaDriver)))
	for name, c := range map[string]struct {
		driver string
		rc     *resourceapi.ResourceClaim
		want   []Step
	}{
		"of the claim":                   {rc: allocated(one, config(fromClaim, driverName, longConfig)), want: []Step{sets(uuidA, "Long")}},
		"of the class":                   {rc: allocated(one, config(fromClass, driverName, shortConfig)), want: []Step{sets(uuidA, "Short")}},
		"the claim's wins, listed first": {rc: allocated(one, config(fromClaim, driverName, longConfig), config(fromClass, driverName, shortConfig)), want: []Step{sets(uuidA, "Long")}},
		"the claim adds nothing":         {rc: allocated(one, config(fromClaim, driverName, sharingConfig), config(fromClass, driverName, shortConfig)), want: []Step{sets(uuidA, "Short")}},
		"none":                           {rc: allocated(one, config(fromClaim, driverName, sharingConfig))},
		"of one request among two GPUs": {
			rc:   allocated(results(result("a", "gpu-aaaaaaaa"), result("b", "gpu-bbbbbbbb")), config(fromClaim, driverName, longConfig, "b")),
			want: []Step{sets(uuidB, "Long")},
		},
		"of two GPUs": {
			rc:   allocated(results(result("a", "gpu-aaaaaaaa"), result("b", "gpu-bbbbbbbb")), config(fromClaim, driverName, longConfig)),
			want: []Step{sets(uuidA, "Long"), sets(uuidB, "Long")},
		},
		"beside a monitor, which it is not for": {
			rc:   allocated(results(result("a", "gpu-aaaaaaaa"), monitors("see")), config(fromClaim, driverName, longConfig, "a")),
			want: []Step{sets(uuidA, "Long")},
		},
		"in NVIDIA's words":                   {driver: nvidiaDriver, rc: allocated(nvidia, config(fromClaim, nvidiaDriver, nvidiaLong)), want: []Step{sets(uuidA, "Long")}},
		"in NVIDIA's words, without interval": {driver: nvidiaDriver, rc: allocated(nvidia, config(fromClaim, nvidiaDriver, nvidiaPlain)), want: []Step{sets(uuidA, "Default")}},
		"for MIG devices, of which there are none": {
			driver: nvidiaDriver, rc: allocated(nvidia, config(fromClaim, nvidiaDriver, nvidiaMIG), config(fromClass, nvidiaDriver, nvidiaLong)),
			want: []Step{sets(uuidA, "Long")},
		},
		"in our words under NVIDIA's name": {driver: nvidiaDriver, rc: allocated(nvidia, config(fromClaim, nvidiaDriver, shortConfig)), want: []Step{sets(uuidA, "Short")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.driver == "" {
				c.driver = driverName
			}
			plan, err := under(c.driver).Resolve(c.rc)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(c.want, plan.Steps))
		})
	}
}

// TestClassSettings_AdminAccess_Ignored: the author of a claim cannot change its class. The class's settings about claims stay in force.
func TestClassSettings_AdminAccess_Ignored(t *testing.T) {
	t.Parallel()
	partitioned, layout := partitionable()
	static(&partitioned.GPUs[0])
	for name, device := range map[string]resourceapi.DeviceRequestAllocationResult{
		"a GPU":        result("see", "gpu-bbbbbbbb", withAdmin),
		"a monitor":    monitors("see"),
		"a MIG device": inA("see", migA+"19-6", withAdmin),
	} {
		for _, class := range []string{shortConfig, lockedConfig, mpsConfig, enforceConfig} {
			t.Run(name+" "+class, func(t *testing.T) {
				t.Parallel()
				plan, err := advertising(partitioned, layout).Resolve(allocated(results(device), config(fromClass, driverName, class, "see")))
				require.NoError(t, err)
				assert.True(t, plan.Results[0].Admin)
				assert.Empty(t, plan.Steps)
			})
		}
	}
	nvidia := monitors("see", withDriver(nvidiaDriver))
	for _, class := range []string{nvidiaLong, nvidiaMIG} {
		_, err := under(nvidiaDriver).Resolve(allocated(results(nvidia), config(fromClass, nvidiaDriver, class, "see")))
		require.NoError(t, err, class)
	}
	owned := result("use", "gpu-bbbbbbbb")
	plan, err := advertising(partitioned, layout).Resolve(allocated(results(owned, result("see", "gpu-bbbbbbbb", withAdmin)), config(fromClass, driverName, shortConfig)))
	require.NoError(t, err)
	assert.Equal(t, []Step{sets(uuidB, "Short")}, plan.Steps, "in force beside it")
}

// TestClaimSettings_AdminAccess_Refused also if the class sets some, with the fix.
func TestClaimSettings_AdminAccess_Refused(t *testing.T) {
	t.Parallel()
	one := results(result("gpu", "gpu-aaaaaaaa", withAdmin))
	for class, want := range map[string]string{
		shortConfig:  adminInterval + `; take the interval out of the claim's configuration`,
		lockedConfig: `GPUConfig: sharing: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class`,
	} {
		rc := allocated(one, config(fromClass, driverName, class), config(fromClaim, driverName, longConfig))
		requireRefused(t, under(driverName), rc, `request "gpu", device gpu-aaaaaaaa: `+want+` (not retryable)`)
	}
	_, err := under(driverName).Resolve(allocated(one, config(fromClass, driverName, profilerConfig)))
	require.NoError(t, err, "what a class says of profiles has no effect")
}

func TestResolve_IntervalNotPossible_Refused(t *testing.T) {
	t.Parallel()
	old := node()
	old.GPUs[0].Product = gpu.Product{Name: "Tesla P4", ComputeCapability: "6.1"}
	partitioned, layout := partitionable()
	shared, timeSlicedLayout := timeSliced()
	for name, c := range map[string]struct {
		source Source
		rc     *resourceapi.ResourceClaim
		want   string
	}{
		"with admin access": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa", withAdmin)), config(fromClaim, driverName, longConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: a time-slice interval cannot be set with adminAccess: nothing about a GPU is changed for such a claim; ` +
				`take the interval out of the claim's configuration (not retryable)`,
		},
		"for a monitor": {
			rc: allocated(results(monitors("see")), config(fromClaim, driverName, longConfig)),
			want: `request "see", device monitor: GPUConfig.sharing is not supported for a monitor device, which only shows GPUs that other claims use; ` +
				`take it out of the ResourceClaim (not retryable)`,
		},
		"before Volta": {
			source: source(old), rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, longConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: the time-slice interval of a GPU of compute capability 6.1 (Tesla P4) cannot be set: that requires 7.0 (Volta) ` +
				`or later; take the interval out of the claim's configuration (not retryable)`,
		},
		"that the class forbids": {
			rc:   allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, longConfig), config(fromClass, driverName, lockedConfig)),
			want: `request "gpu", device gpu-aaaaaaaa: GPUConfig: sharing` + forbidden,
		},
		"NVIDIA's words under our name": {
			rc: allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, nvidiaLong)),
			want: `request "gpu": opaque configuration of the ResourceClaim: apiVersion: unsupported value "resource.nvidia.com/v1beta1"; ` +
				`supported values: gpu.prism.dev/v1alpha1; kind: unsupported value "GpuConfig"; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig; ` +
				`correct it and recreate the claim (not retryable)`,
		},
		"what NVIDIA's kind has not": {
			source: under(nvidiaDriver),
			rc:     allocated(results(result("gpu", "gpu-aaaaaaaa", withDriver(nvidiaDriver))), config(fromClass, nvidiaDriver, nvidiaNonsense)),
			want: `request "gpu": opaque configuration of the DeviceClass: GpuConfig: unknown field "shares"; valid fields: apiVersion, kind, sharing; ` +
				`correct it and recreate the claim (not retryable)`,
		},
		"NVIDIA's kind for another device": {
			source: under(nvidiaDriver),
			rc:     allocated(results(result("gpu", "gpu-aaaaaaaa", withDriver(nvidiaDriver))), config(fromClaim, nvidiaDriver, nvidiaMIG, "gpu")),
			want: `request "gpu", device gpu-aaaaaaaa: MigDeviceConfig is for a device of type "mig" and not of type "gpu"; ` +
				`take it out of the ResourceClaim (not retryable)`,
		},
		"for a share": {
			source: advertising(shared, timeSlicedLayout), rc: allocated(results(aShare("gpu", poolB, timeSliceB, "1")), config(fromClaim, driverName, longConfig)),
			want: `request "gpu", device gpu-bbbbbbbb-timeslice: GPUConfig.sharing is not supported for a device of type "timeslice", whose GPU other claims use too: ` +
				`the node's configuration says how they share it; take it out of the ResourceClaim (not retryable)`,
		},
		"for a MIG device": {
			source: advertising(partitioned, layout), rc: allocated(results(inA("gpu", "gpu-aaaaaaaa-mig-19-0")), config(fromClaim, driverName, longConfig)),
			want: `request "gpu", device gpu-aaaaaaaa-mig-19-0: GPUConfig.sharing with strategy TimeSlicing is not supported for a MIG device, ` +
				`which is a partition of its GPU already; supported values: MPS; take it out of the ResourceClaim (not retryable)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.source.Driver == "" {
				c.source = under(driverName)
			}
			requireRefused(t, c.source, c.rc, c.want)
		})
	}
}
