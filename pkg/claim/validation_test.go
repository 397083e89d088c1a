package claim

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const noTimeSlicing = "GPUConfig.sharing with strategy TimeSlicing is not supported for a MIG device, which is a partition of its GPU already; supported values: MPS"

// classes are the ProfileClasses of the tests: one that claims may not override, and an invalid one.
func classes(name string) *resourceapi.DeviceClass {
	raw, known := map[string]string{
		"locked":    ours(`, "sharing": {"timeSlicing": {"interval": "Short"}}, "claimOverride": "Forbidden"`),
		"wrong":     ours(`, "interval": "Short"`),
		"mps-class": sharing(`{"strategy": "MPS"}`),
	}[name]
	if !known {
		return nil
	}
	class := &resourceapi.DeviceClass{}
	for _, driver := range []string{"tpu.example.com", driverName} {
		class.Spec.Config = append(class.Spec.Config, resourceapi.DeviceClassConfiguration{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(raw)}},
		}})
	}
	return class
}

func ours(fields string) string {
	return `{"apiVersion": "gpu.prism.dev/v1alpha1", "kind": "GPUConfig"` + fields + `}`
}

// one is a spec with a request of that class and a configuration of ours.
func one(class, parameters string) string {
	return `{requests: [{name: r, exactly: {deviceClassName: ` + class + `}}], config: [{requests: [r], opaque: {driver: gpu.prism.dev, parameters: ` +
		parameters + `}}]}`
}

func TestValidator_Claim_ProblemsWithPath(t *testing.T) {
	t.Parallel()
	interval := ours(`, "sharing": {"timeSlicing": {"interval": "Long"}}`)
	const at = "spec.devices.config[0].opaque.parameters: "
	either := func(a, b, requests string) string {
		return `{requests: [{name: r, firstAvailable: [{name: a, deviceClassName: ` + a + `}, {name: b, deviceClassName: ` + b +
			`}]}], config: [{requests: ` + requests + `, opaque: {driver: gpu.prism.dev, parameters: ` + interval + `}}]}`
	}
	const atRequest = `spec.devices.requests: request "r": `
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
		"no configuration":        {`{requests: [{name: r, exactly: {deviceClassName: gpu.prism.dev}}]}`, ""},
		"an interval":             {one("gpu.prism.dev", interval), ""},
		"a class that is unknown": {one("other", interval), ""},
		"another driver": {
			`{requests: [{name: r, exactly: {deviceClassName: x}}], config: [{opaque: {driver: tpu.example.com, parameters: {kind: Nonsense}}}]}`, "",
		},
		"no field": {
			one("gpu.prism.dev", ours(`, "memory": "8Gi"`)),
			at + `request "r": GPUConfig: unknown field "memory"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`,
		},
		"no kind": {
			one("gpu.prism.dev", `{apiVersion: gpu.prism.dev/v1alpha1, kind: GpuConfig}`),
			at + `request "r": kind: unsupported value "GpuConfig"; supported values: GPUConfig, GPUMetricsConfig, ProfilerConfig`,
		},
		"no interval": {
			one("gpu.prism.dev", ours(`, "sharing": {"timeSlicing": {"interval": "Huge"}}`)),
			at + `request "r": GPUConfig: sharing.timeSlicing.interval: unsupported value "Huge"; supported values: Default, Short, Medium, Long`,
		},
		"a tool that is not supported": {
			one("other", `{apiVersion: gpu.prism.dev/v1alpha1, kind: ProfilerConfig, tool: NsightCompute}`),
			at + `request "r": ProfilerConfig.tool NsightCompute is not supported by this version of the driver; supported values: NsightSystems`,
		},
		"a strategy that is not supported": {
			one("other", ours(`, "sharing": {"strategy": "Rounds"}`)),
			at + `request "r": GPUConfig: sharing.strategy: unsupported value "Rounds"; supported values: TimeSlicing, MPS`,
		},
		"MPS of a GPU":                         {one("gpu.prism.dev", ours(`, "sharing": {"strategy": "MPS"}`)), ""},
		"MPS of a MIG device":                  {one("mig.gpu.prism.dev", ours(`, "sharing": {"strategy": "MPS"}`)), ""},
		"sharing of a MIG device":              {one("mig.gpu.prism.dev", interval), at + `request "r": ` + noTimeSlicing},
		"sharing of a MIG device of a profile": {one("mig-1g-24gb-me-all.gpu.prism.dev", interval), at + `request "r": ` + noTimeSlicing},
		"another class of ours":                {one("mig-slow.nvidia.com.gpu.prism.dev", interval), ""},
		"a class without a driver":             {one("mig-1g-10gb", interval), ""},
		"the class of a profile of others":     {one("mig-1g-10gb.gpu.example.com", interval), ""},
		"sharing of a MIG device by capacity":  {one("by-capacity.gpu.prism.dev", interval), at + `request "r": ` + noTimeSlicing},
		"sharing of a share": {
			one("timeslice.gpu.prism.dev", interval),
			at + `request "r": GPUConfig.sharing is not supported for a device of type "timeslice", whose GPU other claims use too: the node's configuration ` +
				`says how they share it`,
		},
		"of the class only": {
			one("gpu.prism.dev", ours(`, "claimOverride": "Forbidden"`)),
			at + `request "r": GPUConfig: claimOverride: must not be set by a ResourceClaim; only a DeviceClass may set it`,
		},
		"what the class forbids": {
			one("locked", interval),
			at + `request "r": GPUConfig: sharing: must not be set by the claim: claimOverride of the DeviceClass is Forbidden; remove it or use another class`,
		},
		"what a wrong class says": {one("wrong", interval), ""},
		"with admin access": {
			`{requests: [{name: r, exactly: {deviceClassName: gpu.prism.dev, adminAccess: true}}], config: [{opaque: {driver: gpu.prism.dev, parameters: ` + interval + `}}]}`,
			at + `request "r": ` + adminInterval,
		},
		"with admin access to what a class sets": {
			`{requests: [{name: r, exactly: {deviceClassName: locked, adminAccess: true}}], config: [{opaque: {driver: gpu.prism.dev, parameters: ` + ours("") + `}}]}`, "",
		},
		"one of two requests": {
			`{requests: [{name: a, exactly: {deviceClassName: gpu.prism.dev}}, {name: b, exactly: {deviceClassName: mig.gpu.prism.dev}}], ` +
				`config: [{requests: [a], opaque: {driver: gpu.prism.dev, parameters: ` + interval + `}}]}`, "",
		},
		"all requests": {
			`{requests: [{name: a, exactly: {deviceClassName: gpu.prism.dev}}, {name: b, exactly: {deviceClassName: mig.gpu.prism.dev}}], ` +
				`config: [{opaque: {driver: gpu.prism.dev, parameters: ` + interval + `}}]}`,
			at + `request "b": ` + noTimeSlicing,
		},
		"one alternative can":       {either("mig.gpu.prism.dev", "gpu.prism.dev", "[r]"), ""},
		"that alternative":          {either("mig.gpu.prism.dev", "gpu.prism.dev", "[r/b]"), ""},
		"the other alternative":     {either("mig.gpu.prism.dev", "gpu.prism.dev", "[r/a]"), at + `request "r/a": ` + noTimeSlicing},
		"none of the alternatives":  {either("mig.gpu.prism.dev", "monitor.gpu.prism.dev", "[r]"), at + `request "r/a": ` + noTimeSlicing},
		"none of all, with a third": {either("monitor.gpu.prism.dev", "mig.gpu.prism.dev", "[]"), at + `request "r/a": GPUConfig.sharing is not supported for a monitor device, which only shows GPUs that other claims use`},
		"an MPS share":              {exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {memory: 2Gi, activeThreadPercentage: "100"}}`, ""), ""},
		"several MPS shares":        {exactly("deviceClassName: mps.gpu.prism.dev, count: 2", ""), atRequest + onlyOne},
		"all MPS shares":            {exactly("deviceClassName: mps.gpu.prism.dev, allocationMode: All", ""), ""},
		"MPS shares with admin access": {
			exactly("deviceClassName: mps.gpu.prism.dev, adminAccess: true", ""), atRequest + "MPS shares cannot be requested with adminAccess",
		},
		"a percentage out of range": {
			exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {activeThreadPercentage: "101"}}`, ""),
			atRequest + "capacity.requests.activeThreadPercentage must be between 0 and 100, got 101",
		},
		"a percentage out of range, in the driver's domain": {
			exactly(`deviceClassName: mps.gpu.prism.dev, capacity: {requests: {gpu.prism.dev/activeThreadPercentage: "101"}}`, ""),
			atRequest + "capacity.requests.activeThreadPercentage must be between 0 and 100, got 101",
		},
		"strategy MPS":                     {exactly("deviceClassName: gpu.prism.dev", mpsConfig), ""},
		"strategy MPS for several GPUs":    {exactly("deviceClassName: gpu.prism.dev, count: 2", mpsConfig), atRequest + onlyOne},
		"strategy MPS of another class":    {exactly("deviceClassName: other, count: 2", mpsConfig), atRequest + onlyOne},
		"strategy MPS for all GPUs":        {exactly("deviceClassName: gpu.prism.dev, allocationMode: All", mpsConfig), ""},
		"several GPUs without MPS":         {exactly("deviceClassName: gpu.prism.dev, count: 2", longConfig), ""},
		"several GPUs of a class with MPS": {exactly("deviceClassName: mps-class, count: 2", plainConfig), atRequest + onlyOne},
		"another strategy than the class":  {exactly("deviceClassName: mps-class, count: 2", longConfig), ""},
		"enforced memory with MPS": {
			exactly("deviceClassName: mps-class", enforceConfig),
			atRequest + "enforceMemory is not supported with strategy MPS: the memory limits of MPS are cooperative, as programs can lift them",
		},
		"strategy MPS with admin access": {
			exactly("deviceClassName: gpu.prism.dev, adminAccess: true", mpsConfig),
			at + `request "r": strategy MPS cannot be set with adminAccess: nothing about a GPU is changed for such a claim`,
		},
		"time-slicing of an MPS share": {
			exactly("deviceClassName: mps.gpu.prism.dev", longConfig),
			at + `request "r": GPUConfig.sharing with strategy TimeSlicing is not supported for a device of type "mps"; supported values: MPS`,
		},
		"limits of MPS out of range": {
			exactly("deviceClassName: mps.gpu.prism.dev", sharing(`{"mps":{"activeThreadPercentage":101,"memoryLimit":"1.5Mi"}}`)),
			at + `GPUConfig: sharing.mps.activeThreadPercentage: must be between 0 and 100, got 101; ` +
				`sharing.mps.memoryLimit: must be a multiple of 1Mi and at least 1Mi, got 1536Ki`,
		},
		"several MPS shares in one alternative": {
			`{requests: [{name: r, firstAvailable: [{name: a, deviceClassName: mps.gpu.prism.dev, count: 2}, {name: b, deviceClassName: gpu.prism.dev, count: 2}]}]}`, "",
		},
		"several MPS shares in the only alternative": {
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

func TestValidator_DeviceClass_ProblemsWithPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ class, config, want string }{
		"valid":           {"locked", "locked", ""},
		"unknown field":   {"wrong", "wrong", `GPUConfig: unknown field "interval"; valid fields: kind, apiVersion, sharing, enforceMemory, claimOverride`},
		"for MIG devices": {"mig.gpu.prism.dev", "locked", noTimeSlicing},
	} {
		err := Validator{Driver: driverName}.DeviceClass(c.class, &classes(c.config).Spec)
		if c.want == "" {
			assert.NoError(t, err, name)
			continue
		}
		assert.EqualError(t, err, "spec.config[1].opaque.parameters: "+c.want, name)
	}
}

// TestValidator_NVIDIAKindOrOtherVersion_OnlyUnderItsName: under the name of NVIDIA's driver its own kinds are accepted, each for devices of
// its type, and the error names every accepted version and kind.
func TestValidator_NVIDIAKindOrOtherVersion_OnlyUnderItsName(t *testing.T) {
	t.Parallel()
	const (
		ours   = "GPUConfig, GPUMetricsConfig, ProfilerConfig"
		nvidia = ours + " of gpu.prism.dev/v1alpha1, GpuConfig, MigDeviceConfig of resource.nvidia.com/v1beta1"
		beta   = "apiVersion: resource.nvidia.com/v1beta1, kind: "
	)
	for _, c := range []struct{ driver, class, parameters, want string }{
		{nvidiaDriver, "gpu.nvidia.com", beta + "GpuConfig", ""},
		{nvidiaDriver, "mig.nvidia.com", beta + "MigDeviceConfig", ""},
		{nvidiaDriver, "gpu.nvidia.com", beta + "MigDeviceConfig", `MigDeviceConfig is for a device of type "mig" and not of type "gpu"`},
		{nvidiaDriver, "mig.nvidia.com", beta + "GpuConfig, sharing: {strategy: TimeSlicing}", `GpuConfig is for a device of type "gpu" and not of type "mig"`},
		{nvidiaDriver, "gpu.nvidia.com", "apiVersion: resource.nvidia.com/v1beta2, kind: GpuConfig", `apiVersion: unsupported value "resource.nvidia.com/v1beta2"; ` +
			`supported values: gpu.prism.dev/v1alpha1, resource.nvidia.com/v1beta1; kind: unsupported value "GpuConfig"; supported values: ` + nvidia},
		{nvidiaDriver, "gpu.nvidia.com", "kind: GPUConfig",
			"apiVersion: required and must be a string; supported values: gpu.prism.dev/v1alpha1, resource.nvidia.com/v1beta1"},
		{nvidiaDriver, "gpu.nvidia.com", "apiVersion: gpu.prism.dev/v1alpha1, kind: MigDeviceConfig",
			`kind: unsupported value "MigDeviceConfig"; supported values: ` + nvidia},
		{nvidiaDriver, "gpu.nvidia.com", "apiVersion: gpu.prism.dev/v1alpha1, kind: Gpu", `kind: unsupported value "Gpu"; supported values: ` + ours},
		{nvidiaDriver, "gpu.nvidia.com", beta + "GPUConfig", `kind: unsupported value "GPUConfig"; supported values: GpuConfig, MigDeviceConfig`},
		{driverName, "gpu.nvidia.com", beta + "GpuConfig", `apiVersion: unsupported value "resource.nvidia.com/v1beta1"; ` +
			`supported values: gpu.prism.dev/v1alpha1; kind: unsupported value "GpuConfig"; supported values: ` + ours},
	} {
		spec := &resourceapi.ResourceClaimSpec{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(`devices: {requests: [{name: r, exactly: {deviceClassName: `+c.class+`}}], `+
			`config: [{requests: [r], opaque: {driver: `+c.driver+`, parameters: {`+c.parameters+`}}}]}`), spec))
		err := Validator{Driver: c.driver}.Claim("spec.spec", spec)
		if c.want == "" {
			assert.NoError(t, err, c.parameters)
			continue
		}
		assert.EqualError(t, err, `spec.spec.devices.config[0].opaque.parameters: request "r": `+c.want, c.parameters)
	}
}
