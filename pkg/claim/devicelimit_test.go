package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// nvidiaMPSOf is a configuration of NVIDIA's driver with strategy MPS.
func nvidiaMPSOf(kind, mpsConfig string) string {
	return `{"apiVersion":"resource.nvidia.com/v1beta1","kind":"` + kind + `","sharing":{"strategy":"MPS","mpsConfig":` + mpsConfig + `}}`
}

// ofNVIDIA is a result of NVIDIA's driver name.
func ofNVIDIA(request, pool, device string) resourceapi.DeviceRequestAllocationResult {
	return result(request, device, withDriver(nvidiaDriver), withPool(pool))
}

// nvidiaSource plans claims under the name of NVIDIA's driver: GPU A is advertised whole and as MIG devices, one of them pre-created if
// wanted, B whole.
func nvidiaSource(preCreated bool) Source {
	n, layout := mpsShared()
	if preCreated {
		static(&n.GPUs[0])
	}
	delete(layout, uuidB)
	s := advertising(n, layout)
	s.Driver = nvidiaDriver
	return s
}

func TestResolve_NVIDIAMPSConfig_LimitsOfEachDevice(t *testing.T) {
	t.Parallel()
	const full = `{"defaultActiveThreadPercentage":50,"defaultPinnedDeviceMemoryLimit":"10Gi",` +
		`"defaultPerDevicePinnedMemoryLimit":{"0":"5Gi","` + string(uuidA) + `":"2Gi"},"multiUser":true}`
	two := results(ofNVIDIA("b", nodeName, "gpu-bbbbbbbb"), ofNVIDIA("a", poolA, "gpu-aaaaaaaa"))
	for name, c := range map[string]struct {
		preCreated bool
		rc         *resourceapi.ResourceClaim
		want       []MPSUse
	}{
		"no settings": {
			rc:   allocated(two[:1], config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", "null"))),
			want: []MPSUse{{Daemon: "bbbbbbbb"}},
		},
		"all settings, by index and by UUID": {
			rc: allocated(two, config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", full))),
			want: []MPSUse{
				{Daemon: "bbbbbbbb", MemoryMiB: 5120, ActiveThreadPercentage: 50}, {Daemon: "aaaaaaaa", MemoryMiB: 2048, ActiveThreadPercentage: 50},
			},
		},
		"the second device": {
			rc: allocated(two, config(fromClass, nvidiaDriver, nvidiaMPSOf("GpuConfig",
				`{"defaultPinnedDeviceMemoryLimit":"10Gi","defaultPerDevicePinnedMemoryLimit":{"1":"5Gi"}}`), "a", "b")),
			want: []MPSUse{{Daemon: "bbbbbbbb", MemoryMiB: 10240}, {Daemon: "aaaaaaaa", MemoryMiB: 5120}},
		},
		"the first device of the configuration's request": {
			rc:   allocated(two, config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", `{"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi"}}`), "a")),
			want: []MPSUse{{}, {Daemon: "aaaaaaaa", MemoryMiB: 1024}},
		},
		"the claim's general limit over the class's for the device": {
			rc: allocated(two[:1], config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", `{"defaultPinnedDeviceMemoryLimit":"3Gi"}`)),
				config(fromClass, nvidiaDriver, nvidiaMPSOf("GpuConfig", `{"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi"}}`), "b")),
			want: []MPSUse{{Daemon: "bbbbbbbb", MemoryMiB: 3072}},
		},
		"MIG devices, made and pre-created, beside a GPU": {
			preCreated: true,
			rc: allocated(results(ofNVIDIA("m", poolA, migA+"9-0"), ofNVIDIA("b", nodeName, "gpu-bbbbbbbb"), ofNVIDIA("s", poolA, migA+"19-6")),
				config(fromClaim, nvidiaDriver, nvidiaMPSOf("MigDeviceConfig", `{"defaultPerDevicePinnedMemoryLimit":{"0":"1Gi","MIG-1":"2Gi"}}`)),
				config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", `{"defaultPerDevicePinnedMemoryLimit":{"0":"7Gi"}}`))),
			want: []MPSUse{
				{Daemon: "aaaaaaaa-mig-9-0", MemoryMiB: 1024}, {Daemon: "bbbbbbbb", MemoryMiB: 7168}, {Daemon: "aaaaaaaa-mig-19-6", MemoryMiB: 2048},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := nvidiaSource(c.preCreated).Resolve(c.rc)
			require.NoError(t, err)
			for i, want := range c.want {
				if want == (MPSUse{}) {
					assert.Nil(t, mpsOf(&plan.Results[i]))
					continue
				}
				assert.Equal(t, &want, mpsOf(&plan.Results[i]))
			}
		})
	}
}

func TestResolve_NVIDIAMPSConfigNotPossible_Refused(t *testing.T) {
	t.Parallel()
	const path, fix = "defaultPerDevicePinnedMemoryLimit", "; correct it and recreate the claim (not retryable)"
	gpuB, made := results(ofNVIDIA("r", nodeName, "gpu-bbbbbbbb")), results(ofNVIDIA("r", poolA, migA+"9-4"))
	limits := func(kind, of string) resourceapi.DeviceAllocationConfiguration {
		return config(fromClaim, nvidiaDriver, nvidiaMPSOf(kind, `{"`+path+`":{`+of+`}}`), "r")
	}
	for name, c := range map[string]struct {
		rc   *resourceapi.ResourceClaim
		want string
	}{
		"an index of no device": {
			allocated(gpuB, limits("GpuConfig", `"1":"1Gi"`)),
			`request "r", device gpu-bbbbbbbb: GpuConfig.sharing.mpsConfig.` + path + `[1]: no device has this index: ` +
				`the claim was allocated 1 for the configuration, counted from 0` + fix,
		},
		"a UUID of another GPU": {
			allocated(gpuB, limits("GpuConfig", `"`+string(uuidA)+`":"1Gi"`)),
			`request "r", device gpu-bbbbbbbb: GpuConfig.sharing.mpsConfig.` + path + `[` + string(uuidA) + `]: no device has this UUID; ` +
				`the claim was allocated for the configuration: ` + string(uuidB) + fix,
		},
		"a UUID of a MIG device that is not made yet": {
			allocated(made, limits("MigDeviceConfig", `"MIG-1":"1Gi"`)),
			`request "r", device ` + migA + `9-4: MigDeviceConfig.sharing.mpsConfig.` + path + `[MIG-1]: no device has this UUID; ` +
				`the claim was allocated for the configuration: one that is made for the claim` + fix,
		},
		"one device twice": {
			allocated(gpuB, limits("GpuConfig", `"0":"1Gi","`+string(uuidB)+`":"2Gi"`)),
			`request "r", device gpu-bbbbbbbb: GpuConfig.sharing.mpsConfig.` + path + `: 0 and ` + string(uuidB) + ` are the same device; ` +
				`remove one of them` + fix,
		},
		"more than the device has": {
			allocated(made, limits("MigDeviceConfig", `"0":"11Gi"`)),
			`request "r", device ` + migA + `9-4: the memory limit 11Gi is more than the 10Gi of the device; lower the limit (not retryable)`,
		},
		"several GPUs": {
			allocated(results(ofNVIDIA("r", nodeName, "gpu-bbbbbbbb"), ofNVIDIA("r", poolA, "gpu-aaaaaaaa")), limits("GpuConfig", `"1":"1Gi"`)),
			`request "r", device gpu-bbbbbbbb: the request was allocated 2 devices, and ` + several,
		},
		"out of range": {
			allocated(gpuB, config(fromClaim, nvidiaDriver, nvidiaMPSOf("GpuConfig", `{"defaultActiveThreadPercentage":101}`))),
			`request "r": opaque configuration of the ResourceClaim: GpuConfig: sharing.mpsConfig.defaultActiveThreadPercentage: must be between 0 and 100, ` +
				`got 101; correct it and recreate the claim (not retryable)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireRefused(t, nvidiaSource(false), c.rc, c.want)
		})
	}
	_, err := nvidiaSource(false).Resolve(allocated(results(result("r", "gpu-bbbbbbbb", withDriver(nvidiaDriver), withAdmin)), limits("GpuConfig", `"4":"1Gi"`)))
	require.ErrorContains(t, err, adminMPS)
}
